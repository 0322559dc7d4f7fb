"""Pools of machines that host slices of a small model, with odd cuts, gaps and times, for property tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from troth.routing.pipelines.graph import Graph, PipelineHost

seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 5.0, 9.0, math.inf]) | st.floats(0, 10)


@dataclass(frozen=True)
class World:
    hosts: list[PipelineHost]
    links: list[list[float]]
    layers: int

    def graph(self) -> Graph:
        return Graph(self.hosts, np.array(self.links).reshape(len(self.hosts), len(self.hosts)), self.layers)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some pipelines with cuts of their own, some slices more, and mostly everything reachable."""
    layers = draw(st.integers(1, 6))
    slices = []
    for _ in range(draw(st.integers(0, 3))):
        cuts = sorted({0, layers, *draw(st.lists(st.integers(0, layers), max_size=2))})
        slices += list(pairwise(cuts))
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(0, layers - 1))
        slices.append((first, draw(st.integers(first + 1, layers))))
    hosts = [
        PipelineHost(
            f"{n:02}", *held, draw(seconds), draw(st.sampled_from([9, 20, 30])), 0, draw(seconds), draw(seconds)
        )
        for n, held in enumerate(slices)
    ]
    return World(hosts, [[draw(seconds) for _ in hosts] for _ in hosts], layers)
