"""Pipelines that no draw decides: the fastest path over all slices, as in Parallax, or phase 1's as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from research.chains.sweep import Layers, fastest
from troth.routing.pipelines.drawn import SegmentDraw, fastest_drawn
from troth.routing.pipelines.graph import Floats, Graph
from troth.routing.pipelines.router import Route, Router
from troth.routing.placement.plan import Slice


def merged(names: Sequence[str]) -> tuple[Slice, ...]:
    """One segment for each run of layers on the same machine; `names` has one for each layer."""
    segments: list[Slice] = []
    first = 0
    for name, run in groupby(names):
        end = first + len(list(run))
        segments.append(Slice(name, first, end))
        first = end
    return tuple(segments)


def fastest_whole(graph: Graph, seconds: Floats, pipelines: Iterable[Sequence[Slice]]) -> Route | None:
    """The pipeline whose stages take the least, links included; None where each has a stage that may not serve."""
    best: Route | None = None
    for stages in pipelines:
        found = fastest_drawn(graph, seconds, [SegmentDraw(stage.first, stage.end, (stage.name,)) for stage in stages])
        if found is not None and (best is None or found[0] < best.seconds):
            best = Route(tuple(stages), found[0])
    return best


class FreeRouter(Router):
    """The scheduler's router, whose load and reservations these choices share."""

    def refresh(self, graph: Graph) -> None:
        """Take over a new graph, and lay it out."""
        super().refresh(graph)
        self.layout = Layers(graph)

    def choose_free(self, request: str, tokens: int) -> Route:
        """The fastest path over all slices, with room and reserved as by `choose`."""
        return self.choose_whole(request, tokens, ())

    def choose_whole(self, request: str, tokens: int, pipelines: Iterable[Sequence[Slice]]) -> Route:
        """The fastest of phase 1's pipelines as it is, with room and reserved as by `choose`; a free one if none has.

        Requests that share their whole pipeline share batches
        from the first stage to the last. Free pipelines that differ in a stage arrive there at different times, and
        each batch reads the weights again.
        """
        refusal = self._refusal(request, tokens)
        if refusal:
            return Route((), 0.0, refusal)
        seconds = self._able_seconds(tokens)
        found = fastest_whole(self._graph, seconds, pipelines) or self._fastest(seconds)
        return self._reserved(request, tokens, found) if found.segments else found

    def _fastest(self, seconds: Floats) -> Route:
        path = fastest(self.layout, seconds)
        if path is None:
            return Route(
                (), 0.0, "No pipeline of machines with room for the request connects the first layer to the last."
            )
        return Route(merged([self._graph.hosts[place].name for place in path[1]]), path[0])
