"""Models and machines of the placement and chain benchmarks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from troth.routing.placement.hardware import Machine, ModelShape

GIB = 1 << 30
WEIGHTS_SHARE = 0.5
"""Part of a GPU's memory that holds weights, as in the published scheduler; the rest is cache and activations."""
# Weights of one layer: attention and 128 experts at one byte; dense at two; attention and 128 experts at one byte.
GPT_OSS = ModelShape(
    36, 128 * 3 * 2880 * 2880 + 2 * 2880 * 64 * 72, 2 * 8 * 64 * 2, 201_088 * 2880 * 2, 201_088 * 2880 * 2
)
DENSE_80 = ModelShape(80, 2 * (3 * 8192 * 28_672 + 2 * 8192 * 9216), 4096, 128_256 * 8192 * 2, 128_256 * 8192 * 2)
EXPERTS_94 = ModelShape(94, 128 * 3 * 4096 * 1536 + 2 * 4096 * 8704, 2048, 151_936 * 4096 * 2, 151_936 * 4096 * 2)
SHAPES = {
    "36 layers, gpt-oss-120b": GPT_OSS,
    "80 layers, dense 70B": DENSE_80,
    "94 layers, 235B of experts": EXPERTS_94,
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory in GiB, bandwidth in GB/s, half-precision TFLOPS."""

    name: str
    memory: int
    bandwidth: float
    tflops: float


A100_80 = Gpu("A100-80G", 80, 2039, 312)
A100_40 = Gpu("A100-40G", 40, 1555, 312)
RTX_5090 = Gpu("RTX 5090", 32, 1792, 104.8)
RTX_4090 = Gpu("RTX 4090", 24, 1008, 82.6)
A6000 = Gpu("RTX A6000", 48, 768, 77)
RTX_4080 = Gpu("RTX 4080", 16, 717, 48.7)
RTX_4070 = Gpu("RTX 4070", 12, 504, 29)

POOLS = {
    "homogeneous": (A100_80,),
    "4 types": (A100_80, A100_40, RTX_5090, RTX_4090),
    "7 types": (A100_80, A6000, A100_40, RTX_5090, RTX_4090, RTX_4080, RTX_4070),
}


def gpus_of(pool: str, count: int, seed: int) -> list[Gpu]:
    """Types drawn evenly."""
    draw = random.Random(f"{pool} {count} {seed}")
    return [draw.choice(POOLS[pool]) for _ in range(count)]


def machines_of(gpus: list[Gpu], shape: ModelShape = GPT_OSS) -> list[Machine]:
    """Machines in the order drawn. A layer takes the time to read its weights: a full batch reads every expert."""
    return [
        Machine(f"node {number:04}", int(gpu.memory * GIB * WEIGHTS_SHARE), shape.layer_bytes / (gpu.bandwidth * 1e9))
        for number, gpu in enumerate(gpus)
    ]
