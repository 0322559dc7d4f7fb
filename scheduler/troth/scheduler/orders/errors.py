"""Why an order on a tab is not taken, or came to nothing.

OrderRefused
 ├─ OrderInvalid         class, terms, time or signature do not hold
 ├─ PriceTooLow          the order pays less than the price list
 ├─ PaymentRequired      the tab does not cover it; ``shortfall`` in the asset's smallest unit
 ├─ TabNotOpen           the tab is closing, or was never opened
 ├─ StakeExhausted       more would be open than this scheduler's stake covers
 ├─ NodeUnpaid           a drawn node has no tab yet that pays it
 ├─ UnknownOrder, NotYet, SecretRefused, TooLate
"""

from __future__ import annotations

from troth.protocol.errors import ProtocolError
from troth.scheduler.errors import OrderRefused, TaskFailed


class OrderInvalid(OrderRefused):
    """What the protocol refuses; its own words say why."""

    code = "invalid_order"

    @classmethod
    def of(cls, error: ProtocolError) -> OrderInvalid:
        """The protocol's refusal; long values are cut, since they may be whole signatures."""
        return cls(error.what, str(error.value)[:200], error.remedy)


class PaymentRequired(OrderRefused):
    """The tab does not cover the order."""

    code = "payment_required"
    status = 402

    def __init__(self, what: str, shortfall: int, remedy: str) -> None:
        super().__init__(what, remedy=remedy)
        self.shortfall = shortfall


class PriceTooLow(PaymentRequired):
    """The order pays less than the price list, or its bound is below what the answer may cost."""

    code = "price_too_low"


class VoucherRefused(OrderRefused):
    """A word on a tab that goes backwards, forgets, or does not authorise its order."""

    code = "voucher_refused"
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


class UnknownOrder(OrderRefused):
    """No such order was taken here."""

    code = "unknown_order"
    status = 404


class NotYet(OrderRefused):
    """What is asked for follows a step that has not been taken."""

    code = "not_yet"
    status = 409


class SecretRefused(OrderRefused):
    """Not the secret that the order committed to."""

    code = "secret_refused"


class OrderFailed(TaskFailed):
    """An order that was taken came to nothing; its client owes nothing and may order again."""

    code = "order_failed"


class NodeFailed(OrderFailed):
    """The node of a segment failed."""

    code = "node_failed"

    def __init__(self, segment: int, operator: str, cause: object) -> None:
        super().__init__(f"The node of segment {segment} failed", _words(cause), "Order again: nothing is owed.")
        self.segment = segment
        self.operator = operator


def _words(cause: object) -> str:
    what = getattr(cause, "what", None)
    return str(what if what is not None else cause)[:300]
