"""Passes of a whole model in bfloat16, ours over those of transformers with torch's own products, in turns.

Where a processor has kernels for bfloat16 both compute the same products; elsewhere ours are widened.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.figures import Figure
from troth.node.engine.layers import LayerSlice
from troth.node.engine.packing import Continuation
from troth.node.engine.wide_products import multiplies_bfloat16
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

POSITIONS = (1, 16, 64, 256)
ROUNDS = 7


def measure(folder: ModelFolder) -> list[Figure]:
    """One row for each number of positions; times are processor time of one thread, medians of so many turns."""
    torch.set_num_threads(1)
    ours = LayerSlice(folder, Segment(0, folder.layers), torch.bfloat16, torch.device("cpu"))
    theirs = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.bfloat16).eval().model
    has = "with" if multiplies_bfloat16() else "without"
    found = []
    for count in POSITIONS:
        tokens = torch.arange(400, 400 + count)
        taken = _in_turns(lambda tokens=tokens: _by_slice(ours, tokens), lambda tokens=tokens: _by_peer(theirs, tokens))
        note = f"a processor {has} kernels for bfloat16; processor time over that of transformers"
        found.append(Figure(f"a pass of {count} positions, bfloat16", taken[0], "ms", paper=taken[1], note=note))
    return found


def _in_turns(*ways: Callable[[], object]) -> list[float]:
    """Medians in milliseconds."""
    taken: list[list[float]] = [[] for _ in ways]
    with torch.inference_mode():
        for turn in range(ROUNDS + 1):
            for way, kept in zip(ways, taken, strict=True):
                began = time.process_time()
                way()
                if turn:
                    kept.append((time.process_time() - began) * 1e3)
    return [statistics.median(one) for one in taken]


def _by_slice(layers: LayerSlice, tokens: torch.Tensor) -> None:
    segment = Segment(0, layers.total_layers)
    cache = layers.new_cache(segment)
    cache.grow(cache.capacity_for(len(tokens)))
    layers.forward(segment, layers.embed(tokens), [Continuation(cache, len(tokens))])


def _by_peer(model: torch.nn.Module, tokens: torch.Tensor) -> None:
    model(tokens[None], past_key_values=DynamicCache(), use_cache=True)
