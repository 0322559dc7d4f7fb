"""The pools that serve: models, machines in two regions, links; and how long anything takes."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace

from support.machine_pools import DENSE_80, POOLS, RTX_4090, RTX_5090, Gpu

from troth.routing.placement.hardware import Capacity, Machine, ModelShape, capacity_of

USABLE = 0.9
"""Part of a GPU's memory that a server may fill (vLLM's default)."""
BANDWIDTH_REACHED, FLOPS_REACHED = 0.8, 0.5
"""Parts of the data sheet's figures that kernels reach."""
BATCH_SECONDS = 0.001
"""Cost of a batch whatever is in it: launches, packing, sending."""
CACHED_TOKENS = 16_384
"""Room that every scheduler keeps in every layer: some thirty requests."""


@dataclass(frozen=True, slots=True)
class Model:
    """A dense transformer. `bytes_per_weight` 1 or 2; states between layers have `width` numbers of two bytes."""

    name: str
    shape: ModelShape
    width: int
    bytes_per_weight: int = 2

    @property
    def layer_flops(self) -> float:
        """Of one token in one layer: two for each weight."""
        return 2 * self.shape.layer_bytes / self.bytes_per_weight

    @property
    def head_flops(self) -> float:
        """Of one token: the head stays at two bytes a weight."""
        return float(self.shape.head_bytes)


# Qwen3-32B: 64 layers, width 5120, 64 heads and 8 cached ones of 128, 25,600 inside.
_QWEN_WEIGHTS = 2 * 5120 * 8192 + 2 * 5120 * 1024 + 3 * 5120 * 25_600
_QWEN_ENDS = 151_936 * 5120 * 2
QWEN_BF16 = Model("Qwen3-32B BF16", ModelShape(64, 2 * _QWEN_WEIGHTS, 4096, _QWEN_ENDS, _QWEN_ENDS), 5120)
QWEN_FP8 = Model("Qwen3-32B FP8", replace(QWEN_BF16.shape, layer_bytes=_QWEN_WEIGHTS), 5120, 1)
DENSE_70B = Model("80 layers, dense 70B", DENSE_80, 8192)


@dataclass(frozen=True, slots=True)
class Site:
    """One machine where it stands."""

    name: str
    gpu: Gpu
    region: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch asks of a machine: its spans of layers, how many of its requests end at the last layer, and summed
    over requests, layers times tokens: `fresh` ones to compute, `cached` ones to read (the fresh included)."""

    spans: Collection[tuple[int, int]]
    closing: float
    fresh: float
    cached: float


@dataclass(frozen=True)
class World:
    """Machines and a model. Links: one-way seconds and bytes a second, inside a region and across."""

    name: str
    model: Model
    sites: tuple[Site, ...]
    inside: tuple[float, float] = (0.001, 1.25e9)
    across: tuple[float, float] = (0.017, 0.2e9)

    def link(self, one: int, other: int) -> tuple[float, float]:
        """Seconds and bytes a second from one place in `sites` to another."""
        if one == other:
            return 0.0, float("inf")
        return self.inside if self.sites[one].region == self.sites[other].region else self.across

    def memory(self, place: int) -> int:
        """Bytes for weights and cache."""
        return int(self.sites[place].gpu.memory * (1 << 30) * USABLE)

    def capacity(self, place: int) -> Capacity:
        """Layers that fit with the room for cache that everyone keeps."""
        return capacity_of(self.memory(place), self.model.shape, CACHED_TOKENS)

    def layer_seconds(self, place: int) -> float:
        """One layer of one token: reading its weights."""
        return self.model.shape.layer_bytes / (self.sites[place].gpu.bandwidth * 1e9 * BANDWIDTH_REACHED)

    def machine(self, place: int) -> Machine:
        """As phase 1 is told of it."""
        return Machine(self.sites[place].name, self.memory(place), self.layer_seconds(place))

    def cache_tokens(self, place: int, first: int, end: int, with_ends: bool = True) -> int:
        """Tokens that fit in each layer beside the weights of [first, end); the ends' too unless clients hold them."""
        shape = self.model.shape
        held = (end - first) * shape.layer_bytes
        if with_ends:
            held += (first == 0) * shape.embedding_bytes + (end == shape.layers) * shape.head_bytes
        return max(0, self.memory(place) - held) // (shape.key_value_bytes * max(1, end - first))

    def batch_seconds(self, place: int, load: Load) -> float:
        """Roofline: each layer's weights are read once, the cache of each request too; every fresh token computes."""
        shape, gpu = self.model.shape, self.sites[place].gpu
        read = union(load.spans) * shape.layer_bytes + load.cached * shape.key_value_bytes
        flops = load.fresh * self.model.layer_flops
        if load.closing:
            read += shape.head_bytes
            flops += load.closing * self.model.head_flops
        rate = gpu.tflops * 1e12 * FLOPS_REACHED * (2 / self.model.bytes_per_weight)
        return BATCH_SECONDS + max(read / (gpu.bandwidth * 1e9 * BANDWIDTH_REACHED), flops / rate)


def union(spans: Collection[tuple[int, int]]) -> int:
    """Layers in at least one span."""
    covered, reached = 0, 0
    for first, end in sorted(spans):
        covered += max(0, end - max(first, reached))
        reached = max(reached, end)
    return covered


def testbed(model: Model) -> World:
    """The paper's machines. Two sites, 1 ms inside and 17 ms across: 10 ms on average, as its section 4.1 says."""
    gpus = [RTX_5090, RTX_5090, RTX_5090, RTX_4090, RTX_5090, RTX_5090, RTX_4090]
    sites = tuple(Site(f"node {number:02}", gpu, int(number >= 4)) for number, gpu in enumerate(gpus))
    return World(f"5 RTX 5090 + 2 RTX 4090, {model.name}", model, sites)


def mixed(types: str, count: int, seed: int) -> World:
    """Types drawn evenly, two continents: 1 ms inside and 80 ms across."""
    draw = random.Random(f"{types} {count} {seed}")  # noqa: S311 - a reproducible pool, no secret
    sites = tuple(Site(f"node {n:02}", draw.choice(POOLS[types]), int(n >= count // 2)) for n in range(count))
    return World(f"{count} machines of {types}, {DENSE_70B.name}", DENSE_70B, sites, across=(0.080, 0.2e9))
