"""What the parties of a settled task showed: openings from the inputs of ``settle`` and ``reveal``."""

from __future__ import annotations

from dataclasses import dataclass

from troth.audit.evidence import Evidence
from troth.audit.history import Step
from troth.audit.inputs import Unavailable, task_call
from troth.protocol.calls import SettleCall, plain_openings
from troth.protocol.contract_types import Opening
from troth.protocol.errors import ProtocolError
from troth.protocol.settlement import Revealed
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
    try:
        plain = plain_openings(call.openings, per_segment)
    except ProtocolError as error:
        return Unavailable(f"its tiles cannot be unmasked: {error}", impossible=True)
    return Shown(tuple(None if _absent(opening) else opening for opening in plain))


def _absent(opening: Opening) -> bool:
    return opening.root == ZERO_HASH and not opening.tiles
