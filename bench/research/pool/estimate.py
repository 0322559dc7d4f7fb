"""What a group of machines would give as one pipeline: order, layers, requests a second, by the world's times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, permutations

from benchmarks.trace import OUTPUT_MEAN, PROMPT_MEAN

from research.pool.pipelines import fits
from research.pool.serving import Hop, Route
from research.pool.simulation import BATCH_REQUESTS
from research.pool.world import Load, World

MEAN_TOKENS = PROMPT_MEAN + OUTPUT_MEAN
MOVES = 40
"""Layers moved between stages at most, from shares by speed on."""
MOST_STAGES = 16
"""Longer pipelines are not looked at: two shorter ones serve more."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A pipeline, its requests a second when full, and the seconds of a token when alone."""

    route: Route
    rate: float
    token_seconds: float


def best_pipeline(world: World, places: Sequence[int]) -> Estimate | None:
    """The best of several orders of the group, layers moved between stages while that helps; None if it is too small.

    Regions stay together; the ends are tried among one machine of each type.
    """
    found = [estimate for order in _orders(world, places) if (estimate := _improved(world, order)) is not None]
    return max(found, key=lambda estimate: (estimate.rate, -estimate.token_seconds), default=None)


def estimate_of(world: World, route: Route) -> Estimate:
    """A full pipeline has one batch going round: each round gives every request a token and lets in new prompts."""
    rooms = [world.cache_tokens(hop.place, hop.first, hop.end) for hop in route]
    batch = max(1, min(BATCH_REQUESTS, int(min(rooms) / MEAN_TOKENS)))
    links = sum(world.link(one.place, other.place)[0] for one, other in zip(route, (*route[1:], route[0]), strict=True))
    full = alone = links
    for hop in route:
        alone += _seconds(world, hop, 1, 1, MEAN_TOKENS / 2)
        # In each round the batch's tokens, and the prompts of those that take the place of the ended.
        turned_over = batch * PROMPT_MEAN / OUTPUT_MEAN
        full += _seconds(world, hop, batch, batch + turned_over, batch * (PROMPT_MEAN + OUTPUT_MEAN / 2))
    return Estimate(route, batch / OUTPUT_MEAN / full, alone)


def _seconds(world: World, hop: Hop, requests: float, fresh: float, cached: float) -> float:
    width = hop.end - hop.first
    closing = requests if hop.end == world.model.shape.layers else 0
    return world.batch_seconds(hop.place, Load([(hop.first, hop.end)], closing, width * fresh, width * cached))


def _orders(world: World, places: Sequence[int]) -> list[list[int]]:
    regions = sorted({world.sites[place].region for place in places})
    orders: list[list[int]] = []
    for turn in permutations(regions):
        inner = [
            place for region in turn for place in sorted(places, key=lambda p: -world.sites[p].gpu.memory)
            if world.sites[place].region == region
        ]  # fmt: skip
        orders.append(inner)
        # The smallest machine at an end costs it the most: also try the largest at both ends.
        last = [place for place in inner if world.sites[place].region == turn[-1]]
        if len(last) > 1:
            chosen = last[1] if last[0] == inner[0] else last[0]
            orders.append([place for place in inner if place != chosen] + [chosen])
    return orders


def _improved(world: World, order: Sequence[int]) -> Estimate | None:
    layers = world.model.shape.layers
    if not 0 < len(order) <= min(layers, MOST_STAGES):
        return None
    caps = [world.capacity(place) for place in order]
    most = [cap.inner for cap in caps]
    if len(order) == 1:
        most = [caps[0].whole]
    else:
        most[0], most[-1] = caps[0].first, caps[-1].last
    if sum(most) < layers or min(most) < 1:
        return None
    best = _estimate(world, order, _by_speed(world, order, most))
    for _ in range(MOVES):
        better = max(
            (_estimate(world, order, counts) for counts in _neighbours(world, best.route, most)),
            key=lambda estimate: estimate.rate,
            default=best,
        )
        if better.rate <= best.rate * (1 + 1e-9):
            break
        best = better
    return best if fits(world, best.route) else None


def _neighbours(world: World, route: Route, most: Sequence[int]) -> list[list[int]]:
    """One layer from the stage with the least room for cache, or from the slowest, to any other that has room."""
    counts = [hop.end - hop.first for hop in route]
    rooms = [world.cache_tokens(hop.place, hop.first, hop.end) for hop in route]
    seconds = [(hop.end - hop.first) * world.layer_seconds(hop.place) for hop in route]
    options = []
    for giver in {rooms.index(min(rooms)), seconds.index(max(seconds))}:
        for taker in range(len(route)):
            if giver != taker and counts[giver] > 1 and counts[taker] < most[taker]:
                changed = list(counts)
                changed[giver] -= 1
                changed[taker] += 1
                options.append(changed)
    return options


def _by_speed(world: World, order: Sequence[int], most: list[int]) -> list[int]:
    """Layers one by one to the stage that would be done first with one more."""
    counts = [1] * len(order)
    seconds = [world.layer_seconds(place) for place in order]
    for _ in range(world.model.shape.layers - len(order)):
        open_stages = [stage for stage in range(len(order)) if counts[stage] < most[stage]]
        counts[min(open_stages, key=lambda stage: (counts[stage] + 1) * seconds[stage])] += 1
    return counts


def _estimate(world: World, order: Sequence[int], counts: Sequence[int]) -> Estimate:
    cuts = pairwise(accumulate(counts, initial=0))
    return estimate_of(world, tuple(Hop(place, *cut) for place, cut in zip(order, cuts, strict=True)))
