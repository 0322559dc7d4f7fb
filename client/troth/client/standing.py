"""What the chain says of a task: the only word on its outcome and its cost that the client believes."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.events import EscrowReleased
from troth.protocol.state import State
from troth.protocol.task import Phase
from troth.protocol.types import ZERO_HASH, Hash32


@dataclass(frozen=True, slots=True)
class Standing:
    """A task on chain. Wei: `held` is locked while it runs, `paid` is gone; what was released counts as neither.

    `output_hash` is None until an answer was committed.
    """

    outcome: str | None
    held: int
    paid: int
    output_hash: Hash32 | None
    positions: int


def standing_of(state: State, task: Hash32) -> Standing | None:
    """Where the task stands; None if it was never opened, so that nothing was ever locked for it."""
    record = state.tasks.get(task)
    if record is None:
        return None
    progress, fee = record.task.progress, record.task.terms.fee
    committed = progress.phase >= Phase.COMMITTED and progress.output_hash != ZERO_HASH
    released = sum(event.amount for event in record.events if isinstance(event, EscrowReleased))
    return Standing(
        outcome=None if record.outcome is None else record.outcome.name.lower(),
        held=fee if record.live else 0,
        paid=0 if record.live else fee - released,
        output_hash=progress.output_hash if committed else None,
        positions=progress.positions,
    )
