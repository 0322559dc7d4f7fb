"""The search region by region, and once more over what all regions left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import ge

from troth.routing.placement.hardware import Capacity, Terms
from troth.routing.placement.objective import Objective, objective
from troth.routing.placement.plan import Slice
from troth.routing.placement.regions import Atlas
from troth.routing.placement.search import Found, search
from troth.routing.placement.staging import Placed, stages_of


@dataclass(frozen=True, slots=True)
class PlacementPart:
    """The pipelines of one search, the machines it left, and what it was to maximise."""

    pipelines: tuple[tuple[Slice, ...], ...]
    left: tuple[Placed, ...]
    found: Found
    aim: Objective


def parts_of(known: Sequence[Placed], layers: int, terms: Terms, atlas: Atlas) -> list[PlacementPart]:
    """One part per region; the last may cross regions: its machines would serve nobody otherwise."""
    regions: dict[int, list[Placed]] = {}
    for placed in known:
        regions.setdefault(placed.region, []).append(placed)
    hops = dict(enumerate(region.hop_seconds for region in atlas.regions))
    parts = [
        _part(members, layers, terms.exponent, hops.get(number, atlas.across_seconds))
        for number, members in sorted(regions.items())
    ]
    left = [placed for part in parts for placed in part.left]
    if terms.crossing and len(regions) > 1 and left:
        parts.append(_part(left, layers, terms.exponent, atlas.across_seconds))
    return parts


def rescored(parts: Sequence[PlacementPart], asked: Sequence[PlacementPart]) -> list[PlacementPart]:
    """The parts with scores by the objectives that were asked for; a part that those lack keeps its own."""
    scored = []
    for number, part in enumerate(parts):
        lengths = [len(pipeline) for pipeline in part.pipelines]
        twin = asked[number] if number < len(asked) else part
        score = twin.aim.score(len(lengths), sum(lengths))
        found = replace(part.found, score=score, score_bound=max(twin.found.score_bound, score))
        scored.append(replace(part, found=found, aim=twin.aim))
    return scored


def _part(members: Sequence[Placed], layers: int, exponent: float, hop_seconds: float) -> PlacementPart:
    mean = sum(1 / placed.speed for placed in members) / len(members)
    aim = objective(exponent, layers * mean, hop_seconds)
    found = search([placed.capacity for placed in members], layers, aim)
    groups = _named(members, layers, found)
    used = {placed.name for group in groups for placed in group}
    left = tuple(placed for placed in members if placed.name not in used)
    return PlacementPart(tuple(stages_of(group, layers) for group in groups), left, found, aim)


def _named(members: Sequence[Placed], layers: int, found: Found) -> list[list[Placed]]:
    """Machines for the kinds that the search chose: the fastest first, so that speeds within a pipeline are alike."""
    fastest = sorted(members, key=lambda placed: (-placed.speed, placed.name))
    alone = [placed for placed in fastest if placed.capacity.whole >= layers][: found.alone]
    kinds: dict[Capacity, list[Placed]] = {}
    for placed in reversed(fastest):
        kinds.setdefault(placed.capacity, []).append(placed)
    together = [[kinds[found.pool.kinds[place]].pop() for place in group] for group in found.groups]
    idle = [placed for line in kinds.values() for placed in line if placed not in alone]
    upgrade(together, idle)
    return [[placed] for placed in alone] + together


def upgrade(groups: Sequence[list[Placed]], idle: Iterable[Placed]) -> None:
    """Put idle machines where slower ones are that hold no more in any place: Z stays, stages are faster or have more
    room for cache. The search takes the smallest machines that do; what it leaves need not be the slowest."""
    taken = sorted(
        (placed.speed, number, place) for number, group in enumerate(groups) for place, placed in enumerate(group)
    )
    useless: set[Capacity] = set()
    for better in sorted(idle, key=lambda placed: (-placed.speed, placed.name)):
        turn = None if better.capacity in useless else _slower(groups, taken, better)
        if turn is None:
            useless.add(better.capacity)  # Those that follow are no faster, so they find no place either.
        else:
            _, number, place = taken.pop(turn)
            groups[number][place] = better


def _slower(groups: Sequence[list[Placed]], taken: Sequence[tuple[float, int, int]], better: Placed) -> int | None:
    """The turn of the slowest machine that is slower and holds no more in any place."""
    for turn, (speed, number, place) in enumerate(taken):
        if speed >= better.speed:
            return None
        if all(map(ge, better.capacity, groups[number][place].capacity)):
            return turn
    return None
