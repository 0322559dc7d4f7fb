"""The fastest path over (layer, host), exactly: one sweep from the first layer to the last (Parallax, section 3.3).

d(x, h) = layer time of h + min over g hosting x - 1 of d(x - 1, g) + link from g to h, where staying costs nothing. A
host may be left and entered at any layer of its slice. Nothing is assumed of the link times, not even that a detour is
never faster.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from troth.routing.pipelines.graph import Floats, Graph

Places = NDArray[np.intp]

KEPT_ELEMENTS = 1 << 22
"""Link times that are laid out per layer in advance, 32 MiB; beyond that they are gathered on each choice."""
FEW = 6
"""Hosts per layer up to which plain Python beats arrays."""
Path = tuple[float, list[int]]
"""Seconds, and the place of the host of each layer."""


class Layers:
    """A graph laid out by layer, as the sweep reads it: lists where `narrow`, else an array for each layer."""

    def __init__(self, graph: Graph, *, narrow: bool | None = None) -> None:
        self.layers, self.uncovered = graph.layers, graph.uncovered
        self.links, self.entry, self.exit = graph.links, graph.entry, graph.exit
        self.members = [
            np.array([place for place, host in enumerate(graph.hosts) if host.first <= layer < host.end], dtype=np.intp)
            for layer in range(graph.layers)
        ]
        widest = max((held.size for held in self.members), default=0)
        self.narrow = widest <= FEW if narrow is None else narrow
        self.flat = np.concatenate(self.members) if self.members else np.empty(0, dtype=np.intp)
        self.offsets = np.cumsum([0, *(held.size for held in self.members)]).tolist()
        self._arrivals, self.nearest = self._laid_out()
        self.rows: list[list[float]] = self.links.tolist() if self.narrow else []
        self.member_lists: list[list[int]] = [held.tolist() for held in self.members] if self.narrow else []

    def arrivals(self, layer: int) -> Floats:
        """Seconds into each host of `layer` (rows) from each host of the layer before (columns)."""
        if self._arrivals:
            return self._arrivals[layer]
        return self._between(self.members[layer - 1], self.members[layer])

    def _between(self, before: Places, after: Places) -> Floats:
        return np.ascontiguousarray(self.links[np.ix_(before, after)].T)

    def _laid_out(self) -> tuple[list[Floats], list[Floats | None]]:
        """Arrivals per layer, one array for all layers that the same hosts pass among themselves; and for those the
        least seconds into each host from any other."""
        keys = [(before.tobytes(), after.tobytes()) for before, after in pairwise(self.members)]
        pairs = dict(zip(keys, pairwise(self.members), strict=True))
        elements = sum(before.size * after.size for before, after in pairs.values())
        if self.uncovered is not None or self.narrow or elements > KEPT_ELEMENTS:
            return [], [None] * self.layers
        laid = {key: self._between(*pair) for key, pair in pairs.items()}
        nearest = {key: _off_diagonal_minimum(laid[key]) for key in pairs if key[0] == key[1]}
        return [np.empty((0, 0)), *(laid[key] for key in keys)], [None, *(nearest.get(key) for key in keys)]


def _off_diagonal_minimum(square: Floats) -> Floats:
    others = square.copy()
    np.fill_diagonal(others, np.inf)
    least: Floats = others.min(axis=1)
    return least


def fastest(graph: Layers, seconds: Floats) -> Path | None:
    """The fastest path if each layer on host h takes `seconds[h]`, infinite where it may not serve; None if none."""
    if graph.uncovered is not None or not graph.layers:
        return None
    return _narrow(graph, seconds) if graph.narrow else _wide(graph, seconds)


def _wide(graph: Layers, seconds: Floats) -> Path | None:
    offsets, spread = graph.offsets, seconds[graph.flat]
    reached = graph.entry[graph.members[0]] + spread[: offsets[1]]
    sweep = [reached]
    for layer in range(1, graph.layers):
        reached = _arrive(graph, layer, reached)
        reached += spread[offsets[layer] : offsets[layer + 1]]
        sweep.append(reached)
    total = reached + graph.exit[graph.members[-1]]
    last = int(total.argmin())
    return None if math.isinf(total[last]) else (float(total[last]), _back(graph, sweep, last))


def _arrive(graph: Layers, layer: int, reached: Floats) -> Floats:
    """The least seconds into each host of `layer`. Where the same hosts go on, most are reached best by staying: only
    those are looked at that even the nearest other host, if it were the fastest of all, could improve on."""
    nearest = graph.nearest[layer]
    if nearest is None:
        fresh: Floats = np.minimum.reduce(graph.arrivals(layer) + reached, axis=1)
        return fresh
    arrived = reached.copy()
    late = np.flatnonzero(reached > reached.min() + nearest)
    if late.size:
        arrived[late] = np.minimum.reduce(graph.arrivals(layer)[late] + reached, axis=1)
    return arrived


def _back(graph: Layers, sweep: list[Floats], column: int) -> list[int]:
    """From the last layer to the first. Of equally fast ways the one that stays is taken."""
    path = [int(graph.members[-1][column])]
    for layer in range(graph.layers - 1, 0, -1):
        ways = graph.arrivals(layer)[column] + sweep[layer - 1]
        column = int(ways.argmin())
        before = graph.members[layer - 1]
        stay = int(before.searchsorted(path[-1]))
        if stay < before.size and before[stay] == path[-1] and ways[stay] <= ways[column]:
            column = stay
        path.append(int(before[column]))
    return path[::-1]


def _narrow(graph: Layers, seconds: Floats) -> Path | None:
    cost, links = seconds.tolist(), graph.rows
    reached = {place: float(graph.entry[place]) + cost[place] for place in graph.member_lists[0]}
    origins: list[dict[int, int]] = []
    for members in graph.member_lists[1:]:
        following, origin = {}, {}
        for place in members:
            best, source = reached.get(place, math.inf), place
            for before, so_far in reached.items():
                if so_far + links[before][place] < best:
                    best, source = so_far + links[before][place], before
            following[place], origin[place] = best + cost[place], source
        reached = following
        origins.append(origin)
    total, last = min((so_far + float(graph.exit[place]), place) for place, so_far in reached.items())
    if math.isinf(total):
        return None
    path = [last]
    for origin in reversed(origins):
        path.append(origin[path[-1]])
    return total, path[::-1]
