"""What the journal's records of one task add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from troth.scheduler.records import (
    FINAL,
    Aborted,
    Aborting,
    Committed,
    Committing,
    Failed,
    Generated,
    Generating,
    Opened,
    Opening,
    Received,
    Record,
    Reopened,
    Sampled,
    Settled,
    Settling,
    Verifying,
    step_name,
)


@dataclass(slots=True)
class Story:
    """The newest record of each kind; None where there was none."""

    received: Received | None = None
    opening: Opening | None = None
    opened: Opened | None = None
    generating: Generating | None = None
    generated: Generated | None = None
    verifying: Verifying | None = None
    committing: Committing | None = None
    committed: Committed | None = None
    sampled: Sampled | None = None
    settling: Settling | None = None
    settled: Settled | None = None
    aborting: Aborting | None = None
    aborted: Aborted | None = None
    failed: Failed | None = None
    reopened: Reopened | None = None
    step: str = ""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Story:
        """The story that `records` tell, oldest first."""
        story = cls()
        for record in records:
            story.add(record)
        return story

    def add(self, record: Record) -> None:
        """Take one more record in."""
        self.step = step_name(record)
        setattr(self, self.step, record)
        if isinstance(record, Reopened):
            self.settled = self.aborted = None

    @property
    def end_block(self) -> int | None:
        """The block that holds the task's end on chain, None before."""
        end = self.settled or self.aborted
        return None if end is None else end.block

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return any(getattr(self, kind.__name__.lower()) is not None for kind in FINAL)
