"""Machines of equal capacity taken together: what the searches of phase 1 work on.

Who holds the embedding and who the head: what a group of machines holds together, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from troth.routing.placement.hardware import Capacity

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


@dataclass(frozen=True, slots=True)
class MachinePool:
    """Kinds in falling order of capacity, and how many there are of each. None can host the whole model alone.

    `least` bounds from below the layers, counted without charges, that any pipeline of them takes; `most` is enough
    for any whose ends can be ends. `demands[k]` bounds from below what k of them take together, since a machine is an
    end of one only; there are no more pipelines than it has entries for.
    """

    layers: int
    kinds: tuple[Capacity, ...]
    counts: tuple[int, ...]
    least: int
    most: int
    demands: tuple[int, ...]

    @property
    def total(self) -> int:
        """Layers that all machines can hold, without charges."""
        return sum(kind.inner * count for kind, count in zip(self.kinds, self.counts, strict=True))


def pool_of(capacities: Iterable[Capacity], layers: int) -> MachinePool:
    """Group capacities; those that hold nothing, or everything alone, are left out: they need no search."""
    counted: dict[Capacity, int] = {}
    for capacity in capacities:
        if capacity.inner > 0 and capacity.whole < layers:
            counted[capacity] = counted.get(capacity, 0) + 1
    kinds = tuple(sorted(counted, reverse=True))
    counts = tuple(counted[kind] for kind in kinds)
    starts, ends = [losses(kind)[0] for kind in kinds], [losses(kind)[1] for kind in kinds]
    floor = layers + min(starts, default=0) + min(ends, default=0)
    ceiling = layers + sum(max((loss for loss in side if loss < NO_END), default=0) for side in (starts, ends))
    least = _reachable(kinds, counts, floor)
    return MachinePool(layers, kinds, counts, least, ceiling, _demands(layers, least, starts, ends, counts))


def _demands(
    layers: int, least: int, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> tuple[int, ...]:
    """k pipelines lose at least the k smallest losses of either end, and the 2 k smallest of any."""
    either = _prefix_sums(map(min, starts, ends), counts)
    start, end = _prefix_sums(starts, counts), _prefix_sums(ends, counts)
    most = min(len(start), len(end), (len(either) + 1) // 2)
    return tuple(
        max(count * least, count * layers + max(either[2 * count], start[count] + end[count])) for count in range(most)
    )


def _prefix_sums(each: Iterable[int], counts: Sequence[int]) -> list[int]:
    possible = sorted((loss, count) for loss, count in zip(each, counts, strict=True) if loss < NO_END)
    return list(accumulate((loss for loss, count in possible for _ in range(count)), initial=0))


def _reachable(kinds: Iterable[Capacity], counts: Iterable[int], floor: int) -> int:
    """The least sum of capacities at or above `floor`; `floor` if none. One bit per sum, all sums at once."""
    if floor >= NO_END:
        return floor
    sums = 1
    for kind, count in zip(kinds, counts, strict=True):
        for _ in range(min(count, -(-floor // kind.inner))):
            sums |= sums << kind.inner
    above = sums >> floor
    return floor + (above & -above).bit_length() - 1 if above else floor
