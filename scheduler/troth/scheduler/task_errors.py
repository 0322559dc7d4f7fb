"""What can go wrong with a task that is paid for itself."""

from __future__ import annotations

from troth.scheduler.errors import OrderRefused, TaskFailed


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


class EmptyPrompt(OrderRefused):
    """No prompt tokens."""

    code = "empty_prompt"


class UnknownTask(OrderRefused):
    """No such task was ever taken here."""

    code = "unknown_task"
    status = 404


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
