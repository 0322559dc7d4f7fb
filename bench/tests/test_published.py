"""The adapter to the published scheduler, against stand-ins that ask for what its versions ask for."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from research.chains.published import PublishedRouter
from research.placement.published import Published, disjoint_pipelines
from support.machine_pools import A100_80

from troth.routing.pipelines.graph import PipelineHost

MODEL = """
class ModelInfo:
    def __init__(self, num_layers, vocab_size): self.num_layers = num_layers
"""
NODE = """
class NodeHardwareInfo:
    def __init__(self, node_id, tflops_fp16, memory_gb): self.memory_gb = memory_gb
class Node:
    def __init__(self, node_id, hardware, model_info):
        self.node_id, self.start_layer, self.end_layer, self.rtt = node_id, None, None, {}
    def set_layer_allocation(self, first, end): self.start_layer, self.end_layer = first, end
    def set_layer_latency_ms(self, latency): self.latency = latency
    def update_rtt(self, other, latency): self.rtt[other] = latency
"""
GREEDY = """
class GreedyLayerAllocator:
    def __init__(self, model_info, {nodes}, assign_left_over_nodes=True):
        assert not assign_left_over_nodes
        self.layers, self.nodes = model_info.num_layers, list({nodes}{attribute})
    def global_allocation(self):
        if self.layers > 36: raise RuntimeError("no room")
        for place, node in enumerate(self.nodes):
            node.start_layer, node.end_layer = place % 2 * 18, place % 2 * 18 + 18
        return True
"""
MANAGER = """
class NodeManager:
    def __init__(self, initial_nodes): self.nodes = initial_nodes
"""
ROUTING = """
class DynamicProgrammingRouting:
    def find_optimal_path(self, nodes, layers):
        first = [node for node in nodes if node.start_layer == 0]
        last = [node for node in nodes if node.end_layer == layers]
        pairs = [(a.latency + b.latency + a.rtt[b.node_id], a.node_id, b.node_id) for a in first for b in last]
        return (list(min(pairs)[1:]), min(pairs)[0]) if pairs else ([], float("inf"))
"""


def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocation: str) -> None:
    package = tmp_path / "scheduling"
    package.mkdir()
    files = {"model_info": MODEL, "node": NODE, "node_management": MANAGER, "__init__": "", "request_routing": ROUTING}
    files["layer_allocation"] = allocation
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in [name for name in sys.modules if name.split(".")[0] == "scheduling"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("nodes", "attribute"), [("nodes", ""), ("node_management", ".nodes")])
def test_either_constructor_is_given_what_it_asks_for(
    nodes: str, attribute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(tmp_path, monkeypatch, GREEDY.format(nodes=nodes, attribute=attribute))
    published = Published(tmp_path)
    assert published.place([A100_80] * 5, 36)[1] == 2
    assert published.place([A100_80] * 5, 80)[1] == 0


def test_the_router_is_given_slices_times_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(tmp_path, monkeypatch, GREEDY.format(nodes="nodes", attribute=""))
    router = PublishedRouter(tmp_path)
    hosts = [PipelineHost("a", 0, 2, 0.010, 9), PipelineHost("b", 2, 4, 0.020, 9), PipelineHost("c", 2, 4, 0.015, 9)]
    links = np.array([[0, 0.001, 0.020], [0.001, 0, 0.5], [0.020, 0.5, 0]])
    nodes = router.nodes(hosts, links, 4)
    assert router.choose(nodes, hosts, links, 4)[1] == pytest.approx(0.061)
    assert router.choose(nodes[:1], hosts, links, 4)[1] == math.inf


def test_pipelines_are_counted_without_using_a_slice_twice() -> None:
    assert disjoint_pipelines([(0, 2), (0, 3), (2, 4), (3, 4), (2, 4)], 4) == 2
    assert disjoint_pipelines([(0, 3), (2, 4)], 4) == 0
    assert disjoint_pipelines([], 4) == 0
