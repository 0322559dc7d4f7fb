"""The fastest pipeline among the candidates that the VRF drew for each segment (design, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from troth.routing.pipelines.graph import Floats, Graph


@dataclass(frozen=True, slots=True)
class SegmentDraw:
    """A segment `[first, end)` and the names that may compute it, in the order drawn."""

    first: int
    end: int
    candidates: tuple[str, ...]


def fastest_drawn(graph: Graph, seconds: Floats, draws: Sequence[SegmentDraw]) -> tuple[float, list[str]] | None:
    """Seconds and a name for each segment; None where some segment has no candidate that can serve and be reached.

    The segments must follow each other from layer 0 to the last. Of equally fast pipelines the one drawn first wins.
    """
    if (
        not draws
        or [draw.first for draw in draws] != [0, *(draw.end for draw in draws[:-1])]
        or draws[-1].end != graph.layers
    ):
        return None
    reached: list[tuple[float, int, tuple[int, ...]]] = []
    for number, draw in enumerate(draws):
        following = []
        for place in _able(graph, draw):
            computing = (draw.end - draw.first) * float(seconds[place])
            arrived, path = _arrive(graph, reached, place) if number else (float(graph.entry[place]), ())
            following.append((arrived + computing, place, (*path, place)))
        reached = following
    done = [(so_far + float(graph.exit[place]), path) for so_far, place, path in reached]
    total, path = min(done, key=lambda pipeline: pipeline[0], default=(math.inf, ()))
    return None if math.isinf(total) else (total, [graph.hosts[place].name for place in path])


def _able(graph: Graph, draw: SegmentDraw) -> list[int]:
    places = [graph.place[name] for name in draw.candidates if name in graph.place]
    return [place for place in places if graph.hosts[place].first <= draw.first < draw.end <= graph.hosts[place].end]


def _arrive(
    graph: Graph, reached: Sequence[tuple[float, int, tuple[int, ...]]], place: int
) -> tuple[float, tuple[int, ...]]:
    ways = ((so_far + float(graph.links[before, place]), path) for so_far, before, path in reached)
    return min(ways, key=lambda way: way[0], default=(math.inf, ()))
