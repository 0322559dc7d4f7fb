"""The published Parallax scheduler on the same pools, from a copy that is at hand: `--parallax PATH/TO/parallax/src`.

Its classes have changed their constructors several times, so arguments are given by the names they ask for.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.machine_pools import Gpu


class Published:
    """Its greedy allocator. Models have gpt-oss-120b's layers, in the number asked for."""

    def __init__(self, source: Path) -> None:
        sys.path.insert(0, str(source))
        self._allocation = importlib.import_module("scheduling.layer_allocation")
        self._model = importlib.import_module("scheduling.model_info")
        self._node = importlib.import_module("scheduling.node")

    def place(self, gpus: Sequence[Gpu], layers: int) -> tuple[float, int]:
        """Milliseconds, and full pipelines; 0 pipelines if it fails or raises."""
        model = self._model_of(layers)
        nodes = self.nodes(gpus, layers, model)
        start = time.perf_counter()
        try:
            allocator = self._allocator(model, nodes)
            succeeded = allocator.global_allocation()
        except Exception:  # noqa: BLE001 - whatever it raises, it has placed nothing
            succeeded = False
        spent = (time.perf_counter() - start) * 1e3
        slices = [(node.start_layer, node.end_layer) for node in nodes if node.start_layer is not None]
        return spent, disjoint_pipelines(slices, layers) if succeeded else 0

    def nodes(self, gpus: Sequence[Gpu], layers: int, model: Any = None) -> list[Any]:
        """One of its nodes for each GPU, without a slice."""
        model = model or self._model_of(layers)
        return [self._node_of(number, gpu, model) for number, gpu in enumerate(gpus)]

    def _allocator(self, model: Any, nodes: list[Any]) -> Any:
        kind = self._allocation.GreedyLayerAllocator
        if "node_management" not in inspect.signature(kind).parameters:
            return _called(kind, model_info=model, nodes=nodes, assign_left_over_nodes=False)
        manager = importlib.import_module("scheduling.node_management").NodeManager(initial_nodes=nodes)
        return _called(kind, model_info=model, node_management=manager, assign_left_over_nodes=False)

    def _model_of(self, layers: int) -> Any:
        return _called(
            self._model.ModelInfo,
            model_name=f"{layers} layers",
            mlx_model_name="",
            head_size=64,
            hidden_dim=2880,
            intermediate_dim=2880,
            num_attention_heads=64,
            num_kv_heads=8,
            vocab_size=201_088,
            num_layers=layers,
            ffn_num_projections=3,
            num_local_experts=128,
            num_experts_per_tok=4,
            param_bytes_per_element=1,
            cache_bytes_per_element=2,
            embedding_bytes_per_element=2,
        )

    def _node_of(self, number: int, gpu: Gpu, model: Any) -> Any:
        name = f"node {number:04}"
        hardware = _called(
            self._node.NodeHardwareInfo,
            node_id=name,
            num_gpus=1,
            tflops_fp16=gpu.tflops,
            gpu_name=gpu.name,
            memory_gb=float(gpu.memory),
            memory_bandwidth_gbps=gpu.bandwidth,
            device="cuda",
        )
        return _called(self._node.Node, node_id=name, hardware=hardware, model_info=model)


def disjoint_pipelines(slices: Sequence[tuple[int, int]], layers: int) -> int:
    """Chains of slices that join exactly, taken one by one, no slice twice."""
    starting: dict[int, list[int]] = {}
    for first, end in slices:
        starting.setdefault(first, []).append(end)

    def chain(first: int) -> list[tuple[int, int]] | None:
        if first == layers:
            return []
        for end in sorted(set(starting.get(first, ())), reverse=True):
            rest = chain(end) if end > first else None
            if rest is not None:
                return [(first, end), *rest]
        return None

    found = 0
    while path := chain(0):
        found += 1
        for first, end in path:
            starting[first].remove(end)
    return found


def _called(kind: Any, **arguments: Any) -> Any:
    accepted = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in arguments.items() if name in accepted})
