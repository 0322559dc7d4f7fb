"""Ends of tasks that a reorganisation may still take back. They are watched until their block is final."""

from __future__ import annotations

import time

from troth.chain.store import WINDOW
from troth.protocol.state import State
from troth.protocol.types import Hash32
from troth.scheduler.journal import Journal
from troth.scheduler.story import Story

REMEMBERED_SECONDS = 86_400.0
"""How far back a restart looks: longer than any chain takes for `WINDOW` blocks."""


class Endings:
    """Tasks whose end is on chain in one of the last blocks."""

    def __init__(self) -> None:
        self._blocks: dict[Hash32, int] = {}

    @classmethod
    def of(cls, journal: Journal) -> Endings:
        """The recent ends that a journal knows."""
        endings = cls()
        for task_id in journal.ended_since(time.time() - REMEMBERED_SECONDS):
            endings.note(Hash32(task_id), Story.of(journal.history(task_id)))
        return endings

    def note(self, task_id: Hash32, story: Story, newest: int = 0) -> None:
        """Watch the end that a story has come to, if it has, and forget those that are final by block `newest`."""
        self._forget_final(newest)
        if story.end_block is not None:
            self._blocks[task_id] = story.end_block

    def forget(self, task_id: Hash32) -> None:
        """Watch a task no longer."""
        self._blocks.pop(task_id, None)

    def _forget_final(self, newest: int) -> None:
        # No reorganisation reaches what is `WINDOW` blocks deep.
        self._blocks = {task_id: block for task_id, block in self._blocks.items() if block > newest - WINDOW}

    def undone(self, state: State) -> list[Hash32]:
        """Watched tasks that have no outcome on chain any more."""
        return [task_id for task_id in self._blocks if not _ended(state, task_id)]


def _ended(state: State, task_id: Hash32) -> bool:
    record = state.tasks.get(task_id)
    return record is not None and record.outcome is not None
