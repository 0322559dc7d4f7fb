"""What can go wrong at a scheduler.

SchedulerError
 ├─ OrderRefused            an order is not taken; nothing is owed
 │   ├─ BadRequest, UnknownClass, BadSignature, Expired, AlreadyOrdered, PromptTooLong, TokenOutOfVocabulary,
 │   ├─ GroupTooSmall, Busy, ChainAway, OtherSplit
 │   ├─ OrderInvalid        class, terms, time or signature do not hold
 │   ├─ BlockTooOld         the order's reference block: whoever sent it sees the chain too late
 │   ├─ BlockTooYoung       the order's reference block: a reorganisation may still take it back
 │   ├─ BlockForgotten      the order's reference block: it may have been admitted before the records began
 │   ├─ TabTooSmall         the tab does not cover it; ``shortfall`` in the asset's smallest unit
 │   │   └─ PriceTooLow     the order pays less than the price list
 │   ├─ VoucherRefused      a word on a tab that goes backwards
 │   ├─ ClaimsUnacknowledged  claims were paid from the tab, and the voucher says less
 │   ├─ AnswersUnacknowledged  answers are long due, and the voucher leaves them out
 │   ├─ TabNotOpen          the tab is closing, or was never opened
 │   ├─ StakeExhausted      more would be open than this scheduler's stake covers
 │   ├─ NodeUnpaid          a drawn node has no tab yet that pays it
 │   ├─ NodeUntrusted       all nodes that were drawn are below the committee's bar
 │   ├─ TicketsNotTaken     tickets that are wrong, spent, or for somebody else
 │   └─ UnknownOrder, NotYet, SecretRefused, TooLate
 ├─ TaskFailed              work that was taken came to nothing
 │   └─ OrderAborted, NodeFailed
 └─ ConfigurationInvalid
"""

from __future__ import annotations

from typing import ClassVar

from troth.protocol.errors import ProtocolError, TrothError


class SchedulerError(TrothError):
    """Base of this package's errors: what happened, the offending value, what to do."""

    code: ClassVar[str] = "scheduler"
    status: ClassVar[int] = 500


class OrderRefused(SchedulerError):
    """The order was not taken. `status` is the HTTP status of the answer."""

    status = 400


class BadRequest(OrderRefused):
    """The order or the request in it is malformed or contradicts itself."""

    code = "bad_request"


class UnknownClass(OrderRefused):
    """This scheduler does not serve the execution class."""

    code = "unknown_class"
    status = 404


class OtherSplit(OrderRefused):
    """The order is for another split of the layers than the present one, `ends`: nodes have moved, or it is wrong."""

    code = "other_split"
    status = 409

    def __init__(self, ends: tuple[int, ...], ordered: str) -> None:
        super().__init__("The order is for another split of the layers", ordered, f"Sign ends {ends}.")
        self.ends = ends


class BadSignature(OrderRefused):
    """The order's signature cannot be recovered, or the order is for another scheduler."""

    code = "bad_signature"


class Expired(OrderRefused):
    """The order's deadline has passed."""

    code = "expired"


class AlreadyOrdered(OrderRefused):
    """This very order was taken before."""

    code = "already_ordered"
    status = 409


class PromptTooLong(OrderRefused):
    """Prompt and output together exceed the model's context."""

    code = "prompt_too_long"
    status = 413


class TokenOutOfVocabulary(OrderRefused):
    """A token id that the model does not have."""

    code = "token_out_of_vocabulary"


class GroupTooSmall(OrderRefused):
    """Fewer nodes serve a segment than the class needs."""

    code = "group_too_small"
    status = 503


class Busy(OrderRefused):
    """All places are taken; `retry_after` in seconds."""

    code = "busy"
    status = 503

    def __init__(self, what: str, retry_after: int) -> None:
        super().__init__(what, remedy=f"Try again in {retry_after} s.")
        self.retry_after = retry_after


class TicketsNotTaken(OrderRefused):
    """Tickets, or a word to the payer that they filled, are not taken."""

    code = "tickets_not_taken"
    status = 422


class ChainAway(OrderRefused):
    """The chain cannot be reached, so no fee could be locked."""

    code = "chain_unavailable"
    status = 503


class TooLate(OrderRefused):
    """What was asked is settled already."""

    code = "too_late"
    status = 409


class TaskFailed(SchedulerError):
    """A task that was taken could not be finished; the fee goes back to the client."""

    code = "task_failed"


class ConfigurationInvalid(SchedulerError):
    """The configuration file cannot be used; the message names the key."""

    code = "configuration_invalid"


class OrderInvalid(OrderRefused):
    """What the protocol refuses; its own words say why."""

    code = "invalid_order"

    @classmethod
    def of(cls, error: ProtocolError) -> OrderInvalid:
        """The protocol's refusal; long values are cut, since they may be whole signatures."""
        return cls(error.what, str(error.value)[:200], error.remedy)


class BlockTooOld(OrderRefused):
    """An order from a chain node that is slow or behind: with a newer block the same order would be taken."""

    code = "old_block"
    status = 409

    def __init__(self, block: int, newest: int, most: int) -> None:
        what = f"The order's block is {newest - block} blocks old, and may be {most}"
        super().__init__(what, block, "Order again with a newer block, from a chain node that is prompt.")


class BlockTooYoung(OrderRefused):
    """An order that names a block which may still be reorganised: others could be drawn for it then."""

    code = "young_block"
    status = 409

    def __init__(self, block: int, newest: int, settled: int) -> None:
        what = f"The order's block may still be taken back: it is at most {newest - 1 - settled} here"
        super().__init__(what, block, "Order again with an older block: GET /v1/prices says `settled_blocks`.")


class BlockForgotten(OrderRefused):
    """An order that may have been taken before these records began: a second admission would convict."""

    code = "new_records"
    status = 503

    def __init__(self, block: int, first: int) -> None:
        what = f"This scheduler's records are new: it takes orders over blocks from {first} on"
        super().__init__(what, block, "Order again in a minute, with a newer block.")


class TabTooSmall(OrderRefused):
    """The tab does not cover the order."""

    code = "payment_required"
    status = 402

    def __init__(self, what: str, shortfall: int, remedy: str) -> None:
        super().__init__(what, remedy=remedy)
        self.shortfall = shortfall


class PriceTooLow(TabTooSmall):
    """The order pays less than the price list, or its bound is below what the answer may cost."""

    code = "price_too_low"


class VoucherRefused(OrderRefused):
    """A word on a tab that goes backwards, forgets, or does not authorise its order."""

    code = "voucher_refused"
    status = 409


class ClaimsUnacknowledged(OrderRefused):
    """Claims were paid from the tab, and the client's word on it says less."""

    code = "claims_unacknowledged"
    status = 409


class AnswersUnacknowledged(OrderRefused):
    """Answers on the tab are long due, and the client's word on it leaves them out."""

    code = "answers_unacknowledged"
    status = 409


class TabNotOpen(OrderRefused):
    """No order is taken on a tab that is closing or unknown."""

    code = "tab_not_open"
    status = 409


class StakeExhausted(OrderRefused):
    """So much is open that a failure would cost more than this scheduler's stake covers."""

    code = "stake_exhausted"
    status = 503


class NodeUnpaid(OrderRefused):
    """No node that was drawn has a tab that covers this order."""

    code = "no_paid_node"
    status = 503


class NodeUntrusted(OrderRefused):
    """The committee rates all nodes that were drawn for a segment below its bar."""

    code = "no_trusted_node"
    status = 503


class UnknownOrder(OrderRefused):
    """No such order was taken here."""

    code = "unknown_order"
    status = 404


class NotYet(OrderRefused):
    """What is asked for follows a step that has not been taken."""

    code = "not_yet"
    status = 409


class EndsInFull(OrderRefused):
    """Its request does not say that the answer may end early: verifiers would reject a part of it."""

    code = "ends_in_full"
    status = 409


class SecretRefused(OrderRefused):
    """Not the secret that the order committed to."""

    code = "secret_refused"


class OrderAborted(TaskFailed):
    """An order that was taken came to nothing; its client owes nothing and may order again."""

    code = "order_failed"


class NodeFailed(OrderAborted):
    """The node of a segment failed."""

    code = "node_failed"

    def __init__(self, segment: int, operator: str, cause: object) -> None:
        super().__init__(f"The node of segment {segment} failed", _words(cause), "Order again: nothing is owed.")
        self.segment = segment
        self.operator = operator


def _words(cause: object) -> str:
    what = getattr(cause, "what", None)
    return str(what if what is not None else cause)[:300]
