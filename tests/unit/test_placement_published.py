"""The adapter to the published scheduler, against stand-ins that ask for what its versions ask for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.placement.pools import A100_80
from benchmarks.placement.published import Published, disjoint_pipelines

MODEL = """
class ModelInfo:
    def __init__(self, num_layers, vocab_size): self.num_layers = num_layers
"""
NODE = """
class NodeHardwareInfo:
    def __init__(self, node_id, tflops_fp16, memory_gb): self.memory_gb = memory_gb
class Node:
    def __init__(self, node_id, hardware, model_info): self.start_layer = self.end_layer = None
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


@pytest.mark.parametrize(("nodes", "attribute"), [("nodes", ""), ("node_management", ".nodes")])
def test_either_constructor_is_given_what_it_asks_for(
    nodes: str, attribute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "scheduling"
    package.mkdir()
    files = {"model_info": MODEL, "node": NODE, "node_management": MANAGER, "__init__": ""}
    files["layer_allocation"] = GREEDY.format(nodes=nodes, attribute=attribute)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in [name for name in sys.modules if name.split(".")[0] == "scheduling"]:
        monkeypatch.delitem(sys.modules, name)
    published = Published(tmp_path)
    assert published.place([A100_80] * 5, 36)[1] == 2
    assert published.place([A100_80] * 5, 80)[1] == 0


def test_pipelines_are_counted_without_using_a_slice_twice() -> None:
    assert disjoint_pipelines([(0, 2), (0, 3), (2, 4), (3, 4), (2, 4)], 4) == 2
    assert disjoint_pipelines([(0, 3), (2, 4)], 4) == 0
    assert disjoint_pipelines([], 4) == 0
