"""From a group of machines to a pipeline: who is first and last, in which order, with how many layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from troth.scheduler.placement.capacity import Capacity
from troth.scheduler.placement.ends import losses
from troth.scheduler.placement.plan import Slice
from troth.scheduler.placement.water_filling import shares


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
    """Hops between regions beyond one per region: one if a chain ends where it began though it went elsewhere."""
    return int(start == end and len(regions) > 1)


def crossings_of(stages: Sequence[Slice], region: Mapping[str, int]) -> int:
    """How often consecutive stages lie in different regions."""
    return sum(region[one.name] != region[other.name] for one, other in pairwise(stages))
