"""What the parties of a settled task showed: openings from the inputs of ``settle`` and ``settleReview``."""

from __future__ import annotations

from dataclasses import dataclass

from troth.audit.evidence import Evidence
from troth.audit.history import Step
from troth.audit.inputs import task_call
from troth.audit.market.inputs import Unavailable
from troth.protocol.calls import SettleCall, SettleReviewCall, plain_openings
from troth.protocol.contract_types import Opening
from troth.protocol.errors import ProtocolError
from troth.protocol.settlement import Revealed
from troth.protocol.state import ReviewRecord
from troth.protocol.types import ZERO_HASH, Hash32


@dataclass(frozen=True, slots=True)
class Shown:
    """Openings by place (1 + k per segment) with plain tiles; None where a party showed nothing."""

    openings: tuple[Opening | None, ...]

    def revealed(self, place: int) -> Revealed | None:
        """The opening at a place as settlement takes it."""
        opening = self.openings[place]
        return None if opening is None else Revealed(opening.root, opening.verdict, opening.tiles)


def read_shown(evidence: Evidence, settled: Step, task_id: Hash32, per_segment: int) -> Shown | Unavailable:
    """The openings that a settlement was decided on."""
    call = task_call(evidence, settled.event.meta, SettleCall)
    if isinstance(call, Unavailable):
        return call
    assert isinstance(call, SettleCall)
    expected = per_segment * settled.before.tasks[task_id].task.progress.segments
    if call.task_id != task_id or len(call.openings) != expected:
        return Unavailable(f"it settles another task or shows {len(call.openings)} of {expected} openings", True)
    return _plain(call.openings, per_segment)


def read_review_shown(evidence: Evidence, settled: Step, record: ReviewRecord, expected: int) -> Shown | Unavailable:
    """The openings that a review was decided on, and that the call names the segment's first decision."""
    call = task_call(evidence, settled.event.meta, SettleReviewCall)
    if isinstance(call, Unavailable):
        return call
    assert isinstance(call, SettleReviewCall)
    first = settled.before.tasks[record.task_id]
    named = (call.task_id, call.segment, call.task, call.settled)
    if named != (record.task_id, record.segment, first.task, first.settled) or len(call.openings) != expected:
        return Unavailable(f"it settles another review or shows {len(call.openings)} of {expected} openings", True)
    return _plain(call.openings, expected)


def _plain(openings: tuple[Opening, ...], per_segment: int) -> Shown | Unavailable:
    try:
        plain = plain_openings(openings, per_segment)
    except ProtocolError as error:
        return Unavailable(f"its tiles cannot be unmasked: {error}", impossible=True)
    return Shown(tuple(None if _absent(opening) else opening for opening in plain))


def _absent(opening: Opening) -> bool:
    return opening.root == ZERO_HASH and not opening.tiles
