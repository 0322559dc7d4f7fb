"""From machines to a pipeline: the order of its stages, and layers shared by speed (Parallax, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from troth.routing.placement.hardware import Capacity
from troth.routing.placement.plan import Slice
from troth.routing.placement.pool import losses

ROUNDS = 60


@lru_cache(maxsize=4096)
def shares(capacities: tuple[int, ...], speeds: tuple[float, ...], layers: int) -> tuple[int, ...]:
    """Layers per stage, in order: sum `layers`, each at least 1 and at most its capacity.

    Expects 1 <= each capacity, `len(capacities)` <= `layers` <= their sum, and finite speeds above 0. The fractional
    share is `min(capacity, level * speed)`; the level is found by bisection as in the paper.
    """
    level = _level(capacities, speeds, layers)
    wanted = [_clamp(level * speed, capacity) for capacity, speed in zip(capacities, speeds, strict=True)]
    whole = [int(share) for share in wanted]
    remainders = sorted(range(len(whole)), key=lambda place: (whole[place] - wanted[place], place))
    return _settle(whole, remainders, capacities, layers)


def _clamp(share: float, capacity: int) -> float:
    return max(1.0, min(float(capacity), share))


def _level(capacities: Sequence[int], speeds: Sequence[float], layers: int) -> float:
    low, high = 0.0, max(capacity / speed for capacity, speed in zip(capacities, speeds, strict=True))
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        filled = sum(_clamp(middle * speed, capacity) for capacity, speed in zip(capacities, speeds, strict=True))
        low, high = (middle, high) if filled < layers else (low, middle)
    return high


def _settle(whole: list[int], order: Sequence[int], capacities: Sequence[int], layers: int) -> tuple[int, ...]:
    """Hand out what rounding down left over, largest remainder first; take back if rounding gave too much."""
    missing = layers - sum(whole)
    step = 1 if missing > 0 else -1
    turn = list(order) if missing > 0 else list(reversed(order))
    while missing:
        before = missing
        for place in turn:
            if missing and 1 <= whole[place] + step <= capacities[place]:
                whole[place] += step
                missing -= step
        if missing == before:
            break
    return tuple(whole)


@dataclass(frozen=True, slots=True)
class Placed:
    """A machine as the search sees it: `speed` in layers a second, `region` by its number."""

    name: str
    capacity: Capacity
    speed: float
    region: int


def stages_of(group: Sequence[Placed], layers: int) -> tuple[Slice, ...]:
    """Contiguous stages of a group that holds the model. Regions are left at most as often as the ends require."""
    ordered = in_order(group, layers)
    held = [placed.capacity.inner for placed in ordered]
    if len(ordered) > 1:
        held[0], held[-1] = ordered[0].capacity.first, ordered[-1].capacity.last
    given = shares(tuple(held), tuple(placed.speed for placed in ordered), layers) if len(ordered) > 1 else (layers,)
    cuts = pairwise(accumulate(given, initial=0))
    return tuple(Slice(placed.name, *cut) for placed, cut in zip(ordered, cuts, strict=True))


def in_order(group: Sequence[Placed], layers: int) -> list[Placed]:
    """The ends that leave the fewest hops between regions, then the most layers; in between, region by region."""
    if len(group) == 1:
        return list(group)
    regions = {placed.region for placed in group}
    spare = sum(placed.capacity.inner for placed in group) - layers
    lost = [losses(placed.capacity) for placed in group]
    _, _, first, last = min(
        (_extra_hops(group[first].region, group[last].region, regions), loss, first, last)
        for first, (at_start, _) in enumerate(lost)
        for last, (_, at_end) in enumerate(lost)
        if first != last and (loss := at_start + at_end) <= spare
    )
    middle = [placed for place, placed in enumerate(group) if place not in (first, last)]
    start, end = group[first].region, group[last].region
    middle.sort(key=lambda placed: (placed.region != start, placed.region == end != start, placed.region))
    return [group[first], *middle, group[last]]


def _extra_hops(start: int, end: int, regions: set[int]) -> int:
    """Hops between regions beyond one per region: one if a pipeline ends where it began though it went elsewhere."""
    return int(start == end and len(regions) > 1)


def crossings_of(stages: Sequence[Slice], region: Mapping[str, int]) -> int:
    """How often consecutive stages lie in different regions."""
    return sum(region[one.name] != region[other.name] for one, other in pairwise(stages))
