"""A chain: who computes which layers of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from troth.scheduler.placement.plan import Slice


@dataclass(frozen=True, slots=True)
class Chain:
    """Segments in order, and the seconds that a token takes through them. No segments: `reason` says why in words."""

    segments: tuple[Slice, ...]
    seconds: float
    reason: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Each machine once, in the order in which it first serves."""
        return tuple(dict.fromkeys(segment.name for segment in self.segments))


def merged(names: Sequence[str]) -> tuple[Slice, ...]:
    """One segment for each run of layers on the same machine; `names` has one for each layer."""
    segments: list[Slice] = []
    first = 0
    for name, run in groupby(names):
        end = first + len(list(run))
        segments.append(Slice(name, first, end))
        first = end
    return tuple(segments)
