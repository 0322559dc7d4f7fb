"""Troth: phase 1 places, phase 2 chooses a chain per request; the scheduler's own code, not a copy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from benchmarks.trace import Request

from research.chains.free_router import FreeRouter
from research.pool.serving import Hop, Measured, Route
from research.pool.world import CACHED_TOKENS, World
from troth.routing.pipelines.graph import Graph, PipelineHost
from troth.routing.placement.hardware import Terms
from troth.routing.placement.placing import place
from troth.routing.placement.plan import Placement
from troth.routing.placement.regions import regions_of

NEAR_SECONDS = 0.010
"""Link time up to which machines share a region: the testbed's sites are 17 ms apart."""
LOADING_RATE = 1e9
"""Bytes a second at which a machine loads layers that it lacks."""

Span = tuple[int, int]


class Ours:
    """Chains are chosen under the load that the scheduler counts and machines report.

    When a machine leaves, the pool is placed again if that gives more pipelines than are left whole; only machines
    whose slices change stop, for as long as they load what they lack.
    """

    name = "Troth"

    def __init__(self, world: World, whole: bool = True) -> None:
        self._whole = whole
        self._world, self._places = world, list(range(len(world.sites)))
        self._names = [site.name for site in world.sites]
        self._place = {name: number for number, name in enumerate(self._names)}
        self._ready: dict[int, float] = {}
        self._measured = [Measured(None, 0)] * len(self._names)
        self.placement = self._placed()
        self._adopt(self.placement)
        self._router = FreeRouter(self._graph(0.0))

    def choose(self, request: Request) -> Route | None:
        """Phase 2: a whole pipeline, or else (or always, if not `whole`) a free one."""
        if self._whole:
            lines = [line.stages for line in self.placement.pipelines]
            chain = self._router.choose_whole(str(request.number), request.tokens, lines)
        else:
            chain = self._router.choose_free(str(request.number), request.tokens)
        return tuple(Hop(self._place[part.name], part.first, part.end) for part in chain.segments) or None

    def release(self, request: Request) -> None:
        """Give the reservation back."""
        self._router.release(str(request.number))

    def report(self, measured: Sequence[Measured], now: float) -> None:
        """A new graph from what the machines measured."""
        self._measured = list(measured)
        self._router.refresh(self._graph(now))

    def left(self, place: int, now: float) -> frozenset[int]:
        """Take the machine out; place again where that serves more."""
        self._places.remove(place)
        before = self._slices
        whole = sum(
            all(self._place[stage.name] != place for stage in line.stages) for line in self.placement.pipelines
        )  # fmt: skip
        self._slices = {other: span for other, span in before.items() if other != place}
        again = self._placed()
        changed = frozenset[int]()
        if len(again.pipelines) > whole:
            self._adopt(again)
            changed = frozenset(other for other, span in self._slices.items() if before.get(other) != span)
            for other in changed:
                self._ready[other] = now + self._lacking(before.get(other), self._slices[other]) / LOADING_RATE
        self._router.refresh(self._graph(now))
        return changed

    def loading(self, now: float) -> bool:
        """Whether any machine is not ready yet."""
        return any(ready > now for ready in self._ready.values())

    def _placed(self) -> Placement:
        names = [self._names[number] for number in self._places]
        links = {
            (self._names[a], self._names[b]): self._world.link(a, b)[0]
            for a in self._places
            for b in self._places
            if a != b
        }
        machines = [self._world.machine(number) for number in self._places]
        terms = Terms(cached_tokens=CACHED_TOKENS)
        return place(machines, self._world.model.shape, terms, regions_of(names, links, NEAR_SECONDS))

    def _adopt(self, placement: Placement) -> None:
        self.placement = placement
        self._slices = {self._place[held.name]: (held.first, held.end) for held in placement.hosted}
        self.cache_tokens = {number: self._world.cache_tokens(number, *span) for number, span in self._slices.items()}

    def _lacking(self, before: Span | None, after: Span) -> int:
        kept = range(0) if before is None else range(max(before[0], after[0]), min(before[1], after[1]))
        return (after[1] - after[0] - len(kept)) * self._world.model.shape.layer_bytes

    def _graph(self, now: float) -> Graph:
        """All machines that are there and ready."""
        there = [number for number in self._slices if self._ready.get(number, 0.0) <= now]
        hosts = [self._host(number) for number in there]
        return Graph(hosts, self._links(there), self._world.model.shape.layers)

    def _host(self, number: int) -> PipelineHost:
        seconds, running = self._measured[number].layer_seconds, self._measured[number].running
        if seconds is None:
            seconds, running = self._world.layer_seconds(number), 0
        return PipelineHost(self._names[number], *self._slices[number], seconds, self.cache_tokens[number], running)

    def _links(self, there: Collection[int]) -> np.ndarray:
        links = [[self._world.link(one, other)[0] for other in there] for one in there]
        return np.array(links, dtype=np.float64).reshape(len(there), len(there))
