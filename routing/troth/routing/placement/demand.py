"""What organisations ask machines for: which deployment of a foreign model a machine without work should take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """A deployment that machines may take.

    Attributes:
        number: by which it is known; lower ones are older.
        wanted: layers that it pays, over all replicas.
        hosted: of them, how many machines hold already.
        epochs: for which it still pays.
    """

    number: int
    wanted: int
    hosted: int
    epochs: int

    @property
    def open(self) -> bool:
        """Whether there is something left to take, for at least one whole epoch."""
        return self.hosted < self.wanted and self.epochs > 0


def by_demand(demands: Iterable[ModelDemand]) -> list[ModelDemand]:
    """The open ones: first whoever lacks the largest part of its machines, then the longest paid, then the oldest.

    All pay the same for a byte, so that a machine gains nothing by preferring one; a deployment without any machine
    serves nobody, and comes before one that has some.
    """
    found = [one for one in demands if one.open]
    return sorted(found, key=lambda one: (one.hosted / one.wanted, -one.epochs, one.number))
