"""Greedy swarm, as Petals does it (Borzunov et al., ACL 2023): servers choose weak blocks, clients the fastest path."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from benchmarks.trace import Request

from research.pool.serving import Hop, Measured, Route
from research.pool.world import World

BALANCE_QUALITY = 0.75
"""A server moves if all moves together would lift the weakest block by more than a third (Petals' default)."""
ROUNDS = 20


class Swarm:
    """Blocks by throughput when each server comes; paths by static times, among servers with room for the session.

    Embedding and head are the clients', as in Petals, and cost nothing here.
    """

    name = "greedy swarm"

    def __init__(self, world: World, seed: int = 0) -> None:
        self._world, self._layers = world, world.model.shape.layers
        self._speed = [1 / world.layer_seconds(place) for place in range(len(world.sites))]
        self._starts: dict[int, int] = {}
        self._width = {place: min(self._layers, world.capacity(place).inner) for place in range(len(world.sites))}
        order = [place for place, width in self._width.items() if width]
        random.Random(seed).shuffle(order)  # noqa: S311 - the order of joining, no secret
        for place in order:
            self._starts[place] = _best_start(self._throughput(self._starts), self._width[place])
        self._balance(order)
        self.slices = {place: (first, first + self._width[place]) for place, first in sorted(self._starts.items())}
        self.cache_tokens = {place: world.cache_tokens(place, *held, False) for place, held in self.slices.items()}
        self._free = dict(self.cache_tokens)
        self._taken: dict[int, Route] = {}
        self._hosts = [
            [place for place, (first, end) in self.slices.items() if first <= layer < end]
            for layer in range(self._layers)
        ]

    def choose(self, request: Request) -> Route | None:
        """The fastest path by link and layer times without load, through servers with room."""
        route = self._path(request.tokens)
        if route is not None:
            self._taken[request.number] = route
            for place in {hop.place for hop in route}:
                self._free[place] -= request.tokens
        return route

    def release(self, request: Request) -> None:
        """Give the room back."""
        for place in {hop.place for hop in self._taken.pop(request.number)}:
            self._free[place] += request.tokens

    def report(self, measured: Sequence[Measured], now: float) -> None:
        """Petals' servers measure themselves when they start, not under load."""

    def left(self, place: int, now: float) -> frozenset[int]:
        """Paths avoid the server. The others stay: in Petals they would look for better blocks minutes later."""
        for hosts in self._hosts:
            if place in hosts:
                hosts.remove(place)
        return frozenset()

    def loading(self, now: float) -> bool:
        """Never."""
        return False

    def _throughput(self, starts: dict[int, int]) -> list[float]:
        blocks = [0.0] * self._layers
        for place, first in starts.items():
            for block in range(first, first + self._width[place]):
                blocks[block] += self._speed[place]
        return blocks

    def _balance(self, order: Sequence[int]) -> None:
        for _ in range(ROUNDS):
            moves = [self._moved(place, order) for place in order]
            if not any(moves):
                return

    def _moved(self, place: int, order: Sequence[int]) -> bool:
        """Move one server if, after all others had moved in turn too, the weakest block would gain enough."""
        weakest = min(self._throughput(self._starts))
        without = {other: first for other, first in self._starts.items() if other != place}
        if weakest > 0 and min(self._throughput(without)) <= 0:
            return False
        start = _best_start(self._throughput(without), self._width[place])
        if start == self._starts[place]:
            return False
        hoped = {**self._starts, place: start}
        for _ in range(ROUNDS):
            before = dict(hoped)
            for other in order:
                rest = {one: first for one, first in hoped.items() if one != other}
                blocks = self._throughput(rest)
                best, now = _best_start(blocks, self._width[other]), hoped[other]
                if sorted(blocks[best : best + self._width[other]]) < sorted(blocks[now : now + self._width[other]]):
                    hoped[other] = best
            if hoped == before:
                break
        lifted = min(self._throughput(hoped))
        if lifted <= 0 or weakest / lifted >= BALANCE_QUALITY:
            return False
        self._starts[place] = start
        return True

    def _path(self, tokens: int) -> Route | None:
        reached: dict[int, float] = {}
        origins: list[dict[int, int]] = []
        for layer, hosts in enumerate(self._hosts):
            following, origin = {}, {}
            for place in hosts:
                if self._free[place] < tokens:
                    continue
                came, source = (0.0, place) if layer == 0 else self._arrive(reached, place)
                if came < math.inf:
                    following[place], origin[place] = came + 1 / self._speed[place], source
            reached = following
            origins.append(origin)
        if not reached:
            return None
        last = min(reached, key=lambda place: (reached[place], place))
        return _hops(origins, last)

    def _arrive(self, reached: dict[int, float], place: int) -> tuple[float, int]:
        best, source = reached.get(place, math.inf), place
        for before, so_far in reached.items():
            if before != place and so_far + self._world.link(before, place)[0] < best:
                best, source = so_far + self._world.link(before, place)[0], before
        return best, source


def _best_start(throughput: Sequence[float], width: int) -> int:
    return min((sorted(throughput[first : first + width]), first) for first in range(len(throughput) - width + 1))[1]


def _hops(origins: list[dict[int, int]], last: int) -> Route:
    path = [last]
    for origin in reversed(origins[1:]):
        path.append(origin[path[-1]])
    path.reverse()
    hops, first = [], 0
    for layer in range(1, len(path) + 1):
        if layer == len(path) or path[layer] != path[first]:
            hops.append(Hop(path[first], first, layer))
            first = layer
    return tuple(hops)
