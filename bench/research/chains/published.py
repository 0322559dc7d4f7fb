"""The published Parallax router on the same graphs, from a copy that is at hand: `--parallax PATH/TO/parallax/src`.

It goes from slice to slice that join exactly, so it is told each slice's whole time, and it never enters one half-way.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.machine_pools import A100_80

from research.placement.published import Published
from troth.routing.pipelines.graph import Floats, PipelineHost


class PublishedRouter:
    """Its dynamic programme over a snapshot of nodes."""

    def __init__(self, source: Path) -> None:
        self._published = Published(source)
        self._routing = importlib.import_module("scheduling.request_routing").DynamicProgrammingRouting()

    def nodes(self, hosts: Sequence[PipelineHost], links: Floats, layers: int) -> list[Any]:
        """Its nodes with the hosts' slices, milliseconds of each whole slice, and of all links."""
        nodes = self._published.nodes([A100_80] * len(hosts), layers)
        for one, (node, host) in enumerate(zip(nodes, hosts, strict=True)):
            node.set_layer_allocation(host.first, host.end)
            node.set_layer_latency_ms(1e3 * (host.end - host.first) * host.layer_seconds)
            for other, target in enumerate(nodes):
                if other != one:
                    node.update_rtt(target.node_id, 1e3 * float(links[one, other]))
        return nodes

    def choose(
        self, nodes: list[Any], hosts: Sequence[PipelineHost], links: Floats, layers: int
    ) -> tuple[float, float]:
        """Milliseconds of the choice, and the chosen chain's seconds by our times; infinite if it finds none."""
        start = time.perf_counter()
        path, _ = self._routing.find_optimal_path(nodes, layers)
        spent = (time.perf_counter() - start) * 1e3
        places = {node.node_id: number for number, node in enumerate(nodes)}
        chain = [places[name] for name in path]
        if not chain:
            return spent, math.inf
        computing = sum((hosts[place].end - hosts[place].first) * hosts[place].layer_seconds for place in chain)
        travelling = sum(float(links[one, other]) for one, other in pairwise(chain))
        return spent, computing + travelling
