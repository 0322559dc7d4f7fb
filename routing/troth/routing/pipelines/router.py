"""Choosing pipelines under load: the fastest of those drawn, held until its request ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from troth.routing.pipelines.drawn import SegmentDraw, fastest_drawn
from troth.routing.pipelines.graph import Floats, Graph
from troth.routing.placement.plan import Slice

LOAD_SLOPE = 0.1
"""How much slower one more running request makes a layer, as a share of the idle time. Decoding shares the reading of
weights, so far less than 1."""
MOST_REQUESTS = 1 << 16
MOST_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class Route:
    """Segments in order, and the seconds that a token takes through them. No segments: `reason` says why in words."""

    segments: tuple[Slice, ...]
    seconds: float
    reason: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Each machine once, in the order in which it first serves."""
        return tuple(dict.fromkeys(segment.name for segment in self.segments))


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one running request holds: so many tokens of cache at each of these machines."""

    names: tuple[str, ...]
    tokens: int


class Router:
    """Phase 2 of one scheduler. It counts what it reserved itself; `refresh` brings in what machines measured.

    Cache left is what a machine has for this scheduler less what runs here, so a late report cannot give out the same
    tokens twice. A measured time counts for the number of requests that ran when it was measured.
    """

    def __init__(self, graph: Graph) -> None:
        self._running: dict[str, Reservation] = {}
        self.refresh(graph)

    def refresh(self, graph: Graph) -> None:
        """Take over a new graph. What runs keeps running, also on machines that are gone from it."""
        self._graph = graph
        self._load = np.zeros(len(graph.hosts))
        self._free = np.array([float(min(max(0, host.cache_tokens), MOST_TOKENS)) for host in graph.hosts])
        reported = np.array([float(max(0, host.running)) for host in graph.hosts])
        self._idle_seconds = graph.seconds / (1 + LOAD_SLOPE * reported)
        for held in self._running.values():
            self._take(held.names, held.tokens, 1)

    def choose(self, request: str, tokens: int, draws: Sequence[SegmentDraw]) -> Route:
        """The fastest pipeline among those drawn with room for `tokens` at each machine, reserved until `release`.

        A request that already runs keeps what it has and gets no second pipeline.
        """
        refusal = self._refusal(request, tokens)
        if refusal:
            return Route((), 0.0, refusal)
        found = fastest_drawn(self._graph, self._able_seconds(tokens), draws)
        if found is None:
            return Route((), 0.0, "Some segment has no drawn candidate with room that the one before can reach.")
        parts = tuple(Slice(name, draw.first, draw.end) for name, draw in zip(found[1], draws, strict=True))
        return self._reserved(request, tokens, Route(parts, found[0]))

    def _able_seconds(self, tokens: int) -> Floats:
        return np.where(self._free >= tokens, self.layer_seconds(), np.inf)

    def _reserved(self, request: str, tokens: int, pipeline: Route) -> Route:
        self._running[request] = Reservation(pipeline.names, tokens)
        self._take(pipeline.names, tokens, 1)
        return pipeline

    def release(self, request: str) -> bool:
        """Give back what the request holds, once; False if it holds nothing."""
        held = self._running.pop(request, None)
        if held is None:
            return False
        self._take(held.names, -held.tokens, -1)
        return True

    def running_on(self, name: str) -> int:
        """Requests of this scheduler that hold something at a machine, by its own count."""
        return sum(name in held.names for held in self._running.values())

    def layer_seconds(self) -> Floats:
        """Seconds of one layer at each host, under what runs now."""
        return self._idle_seconds * (1 + LOAD_SLOPE * self._load)

    def _take(self, names: Sequence[str], tokens: int, requests: int) -> None:
        for name in names:
            place = self._graph.place.get(name)
            if place is not None:
                self._free[place] -= tokens
                self._load[place] += requests

    def _refusal(self, request: str, tokens: int) -> str:
        if request in self._running:
            return "This request already runs on a pipeline: release that one first."
        if not 0 <= tokens <= MOST_TOKENS:
            return f"A request cannot hold {tokens} tokens."
        if len(self._running) >= MOST_REQUESTS:
            return f"{MOST_REQUESTS} requests already run here: try again when one has ended."
        if self._graph.uncovered is not None:
            return f"Nobody hosts layer {self._graph.uncovered}: place the slices again."
        return ""
