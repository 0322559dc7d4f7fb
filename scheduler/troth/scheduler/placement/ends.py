"""Who holds the embedding and who the head: what a group of machines holds together, exactly."""

from __future__ import annotations

from collections.abc import Sequence

from troth.scheduler.placement.capacity import Capacity

NO_END = 1 << 40
"""Loss of a machine that cannot be an end: larger than any sum of layers."""


def losses(capacity: Capacity) -> tuple[int, int]:
    """Layers lost by being first and by being last; `NO_END` where no layer would be left."""
    at_start = capacity.inner - capacity.first if capacity.first > 0 else NO_END
    at_end = capacity.inner - capacity.last if capacity.last > 0 else NO_END
    return at_start, at_end


def best_ends(group: Sequence[Capacity]) -> tuple[int, int, int]:
    """The smallest loss, and the places in `group` of the first and last stage that have it. Two machines or more."""
    starts = sorted((losses(capacity)[0], place) for place, capacity in enumerate(group))[:2]
    ends = sorted((losses(capacity)[1], place) for place, capacity in enumerate(group))[:2]
    return min((start + end, first, last) for start, first in starts for end, last in ends if first != last)


def holds(group: Sequence[Capacity], layers: int) -> bool:
    """Whether the machines can host all layers as one pipeline in which every stage has at least one."""
    if len(group) == 1:
        return 0 < layers <= group[0].whole
    if not 1 < len(group) <= layers:
        return False
    return sum(capacity.inner for capacity in group) - best_ends(group)[0] >= layers
