"""A node as the placement sees it."""

from __future__ import annotations

from dataclasses import dataclass

from troth.scheduler.placement.hardware import Machine
from troth.scheduler.placement.plan import Slice


@dataclass(frozen=True, slots=True)
class Member:
    """A registered node that reports.

    Args:
        name: its operator address.
        memory_bytes: what its operator lends for weights and cache.
        layer_seconds: as the scheduler believes it, see `measurements`.
        first, end: its slice on chain.
        movable: its operator has agreed to be given slices here, and the chain lets it change its slice now.
    """

    name: str
    memory_bytes: int
    layer_seconds: float
    first: int
    end: int
    movable: bool

    @property
    def hosted(self) -> Slice:
        """What it hosts."""
        return Slice(self.name, self.first, self.end)

    @property
    def machine(self) -> Machine:
        """What it could host."""
        return Machine(self.name, self.memory_bytes, self.layer_seconds)
