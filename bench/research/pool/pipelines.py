"""Fixed pipelines, each request to the one with the least load for its rate; the even split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.trace import Request

from research.pool.serving import Hop, Measured, Route
from research.pool.world import World


class Pipelines:
    """Disjoint pipelines. `rates[p]` weighs pipeline p when requests are shared out."""

    def __init__(self, world: World, name: str, routes: Sequence[Route], rates: Sequence[float]) -> None:
        self.name, self.routes, self.rates = name, list(routes), list(rates)
        self.cache_tokens = {
            hop.place: world.cache_tokens(hop.place, hop.first, hop.end) for route in routes for hop in route
        }
        self._free = [min(self.cache_tokens[hop.place] for hop in route) for route in routes]
        self._load = [0] * len(self.routes)
        self._taken: dict[int, int] = {}

    def choose(self, request: Request) -> Route | None:
        """The pipeline with room whose load, this request included, is least for its rate."""
        able = [number for number, free in enumerate(self._free) if free >= request.tokens]
        if not able:
            return None
        chosen = min(able, key=lambda number: ((self._load[number] + request.tokens) / self.rates[number], number))
        self._free[chosen] -= request.tokens
        self._load[chosen] += request.tokens
        self._taken[request.number] = chosen
        return self.routes[chosen]

    def release(self, request: Request) -> None:
        """Give the room back."""
        chosen = self._taken.pop(request.number)
        self._free[chosen] += request.tokens
        self._load[chosen] -= request.tokens

    def report(self, measured: Sequence[Measured], now: float) -> None:
        """Static: what machines measure changes nothing."""

    def left(self, place: int, now: float) -> frozenset[int]:
        """Static: the machine's pipeline is out, the others go on."""
        for number, route in enumerate(self.routes):
            if any(hop.place == place for hop in route):
                self._free[number] = -1 << 60
        return frozenset()

    def loading(self, now: float) -> bool:
        """Never."""
        return False


def even_split(world: World) -> Pipelines:
    """The most groups of equally many neighbours that can share the layers out evenly."""
    places, layers = len(world.sites), world.model.shape.layers
    for groups in range(places, 0, -1):
        bounds = [places * number // groups for number in range(groups + 1)]
        routes = [_evenly(range(a, b), layers) for a, b in pairwise(bounds)]
        if all(fits(world, route) for route in routes):
            return Pipelines(world, "even split", routes, [1.0] * groups)
    return Pipelines(world, "even split", [], [])


def fits(world: World, route: Route) -> bool:
    """Whether each machine can hold its part, the ends included."""
    layers = world.model.shape.layers
    return all(
        0 < hop.end - hop.first <= world.capacity(hop.place).of_slice(hop.first, hop.end, layers) for hop in route
    )


def _evenly(places: Sequence[int], layers: int) -> Route:
    bounds = [layers * number // len(places) for number in range(len(places) + 1)]
    return tuple(Hop(place, bounds[number], bounds[number + 1]) for number, place in enumerate(places))
