"""What can go wrong at a scheduler.

SchedulerError
 ├─ OrderRefused            a client's order is not taken; nothing was charged
 │   ├─ BadRequest, UnknownClass, BadSignature, Expired, WrongReferenceBlock, FeeTooLow,
 │   ├─ InsufficientEscrow, AlreadyOrdered, PromptTooLong, TokenOutOfVocabulary, EmptyPrompt,
 │   └─ GroupTooSmall, Busy, ChainAway, OtherSplit, UnknownTask
 ├─ TaskFailed              a task that was taken came to nothing
 │   ├─ HopFailed           one inferencer failed; another candidate may take over
 │   ├─ NoCandidateLeft
 │   ├─ QuorumMissed        too few verifiers committed
 │   └─ WindowUsedUp        the nodes left too little of the commit window
 └─ ConfigurationInvalid
"""

from __future__ import annotations

from typing import ClassVar


class SchedulerError(Exception):
    """Base of this package's errors: what happened, the offending value, what to do."""

    code: ClassVar[str] = "scheduler"
    status: ClassVar[int] = 500

    def __init__(self, what: str, value: object = None, remedy: str = "") -> None:
        self.what = what
        self.value = value
        self.remedy = remedy
        shown = "" if value is None else f": {value}"
        super().__init__(f"{what}{shown}" + (f". {remedy}" if remedy else ""))


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


class WrongReferenceBlock(OrderRefused):
    """The order's reference block is too old, or not there yet."""

    code = "wrong_reference_block"


class FeeTooLow(OrderRefused):
    """The order's maximum fee does not cover the task."""

    code = "fee_too_low"
    status = 402


class InsufficientEscrow(OrderRefused):
    """The client's free escrow does not cover the fee; `shortfall` in wei."""

    code = "insufficient_escrow"
    status = 402

    def __init__(self, what: str, shortfall: int, remedy: str) -> None:
        super().__init__(what, remedy=remedy)
        self.shortfall = shortfall


class AlreadyOrdered(OrderRefused):
    """This very order was taken before."""

    code = "already_ordered"
    status = 409


class EmptyPrompt(OrderRefused):
    """No prompt tokens."""

    code = "empty_prompt"


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


class ChainAway(OrderRefused):
    """The chain cannot be reached, so no fee could be locked."""

    code = "chain_unavailable"
    status = 503


class UnknownTask(OrderRefused):
    """No such task was ever taken here."""

    code = "unknown_task"
    status = 404


class TooLate(OrderRefused):
    """What was asked is settled already."""

    code = "too_late"
    status = 409


class TaskFailed(SchedulerError):
    """A task that was taken could not be finished; the fee goes back to the client."""

    code = "task_failed"


class HopFailed(TaskFailed):
    """An inferencer failed; `segment` and `operator` say which."""

    code = "node_failed"

    def __init__(self, segment: int, operator: str, cause: object) -> None:
        super().__init__(f"{operator} failed as inferencer of segment {segment}", cause)
        self.segment = segment
        self.operator = operator


class NoCandidateLeft(TaskFailed):
    """Every candidate of a segment has failed."""

    code = "no_candidate_left"


class QuorumMissed(TaskFailed):
    """Fewer verifiers than the quorum committed to a verdict in time."""

    code = "quorum_missed"


class WindowUsedUp(TaskFailed):
    """The nodes used up their part of the commit window; the rest is needed to give the fee back."""

    code = "window_used_up"


class ConfigurationInvalid(SchedulerError):
    """The configuration file cannot be used; the message names the key."""

    code = "configuration_invalid"
