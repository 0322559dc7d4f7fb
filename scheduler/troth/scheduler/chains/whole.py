"""The fastest of phase 1's pipelines, each taken as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from troth.scheduler.chains.chain import Chain
from troth.scheduler.chains.drawn import Draw, fastest_drawn
from troth.scheduler.chains.graph import Floats, Graph
from troth.scheduler.placement.plan import Slice


def fastest_whole(graph: Graph, seconds: Floats, pipelines: Iterable[Sequence[Slice]]) -> Chain | None:
    """The pipeline whose stages take the least, links included; None where each has a stage that may not serve."""
    best: Chain | None = None
    for stages in pipelines:
        found = fastest_drawn(graph, seconds, [Draw(stage.first, stage.end, (stage.name,)) for stage in stages])
        if found is not None and (best is None or found[0] < best.seconds):
            best = Chain(tuple(stages), found[0])
    return best
