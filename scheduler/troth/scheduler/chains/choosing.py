"""What a task's generation asks of whoever chooses chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from troth.protocol.types import Address
from troth.scheduler.admitted import AdmittedTask


class Chains(Protocol):
    """Chooses by measured times, holds the room that a task needs, and learns from how long answers took."""

    def choose(self, task: AdmittedTask, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """One of the `allowed` for each segment, with room held for the task in place of what it held before.

        None where measured times say nothing: then the caller chooses by what it knows.
        """

    def note_answer(self, task: AdmittedTask, node: Address, layers: int, seconds: float) -> None:
        """One position through `layers` layers took `seconds`, the way included."""

    def release(self, task: AdmittedTask) -> None:
        """The task is over: nothing is held for it any more."""
