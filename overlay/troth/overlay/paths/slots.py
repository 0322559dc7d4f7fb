"""The places of a pool: one circuit in use in each, and older ones until their users let go.

Circuits of different places never share a relay, an operator or a network. Those of one place may: a circuit's
successor usually has the same guard. So whoever holds circuits of different places holds disjoint ones, however often
each was renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.paths.choice import Path


@dataclass(eq=False)
class PooledCircuit:
    """A circuit in a pool.

    Attributes:
        held: how many users it has.
        stale: the directory does not name all of its relays any more; a successor is to be built.
        retired: nobody gets it any more; closed once nobody holds it.
    """

    circuit: Circuit
    held: int = 0
    stale: bool = False
    retired: bool = False

    @property
    def live(self) -> bool:
        """Whether it can be handed out."""
        return self.circuit.failure is None and not self.retired

    def retire(self) -> None:
        """Close it as soon as nobody holds it."""
        self.retired = True
        if self.held == 0:
            self.circuit.close()


@dataclass(eq=False)
class Slot:
    """One place.

    Attributes:
        members: its circuits, the newest last.
        path: chosen for its next circuit.
        task: builds that circuit.
        not_before: loop time before which no path is looked for again.
    """

    members: list[PooledCircuit] = field(default_factory=list)
    path: Path | None = None
    task: asyncio.Task[None] | None = None
    not_before: float = 0.0

    @property
    def current(self) -> PooledCircuit | None:
        """The circuit that is handed out from here."""
        return next((member for member in reversed(self.members) if member.live), None)

    @property
    def held(self) -> int:
        """Users of this place's circuits, old ones too."""
        return sum(member.held for member in self.members)

    @property
    def wanting(self) -> bool:
        """Whether a circuit should be built for it."""
        current = self.current
        return self.task is None and (current is None or current.stale or current.circuit.due)

    def paths(self) -> Iterator[Path]:
        """What is in use here."""
        for member in self.members:
            if member.circuit.failure is None:
                yield member.circuit.path
        if self.path is not None:
            yield self.path

    def welcome(self, circuit: Circuit) -> PooledCircuit:
        """A new circuit takes the place over."""
        for member in self.members:
            member.retire()
        member = PooledCircuit(circuit)
        self.members.append(member)
        self.sweep()
        return member

    def sweep(self) -> None:
        """Forget circuits that ended and that nobody holds."""
        self.members = [member for member in self.members if member.held or member.circuit.failure is None]
