"""Products of matrices alone, in torch, on the shapes of a model: what neither inference nor verification goes below.

Each layer has weights of its own, so that they come from memory as in a real pass. What shares its input is one
product, as engines fuse it: queries, keys and values; gate and up. Attention, norms, rotations, rows, hashes and the
choice of tokens cost nothing here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from troth.node.models.folder import ModelFolder

AT_A_TIME = 512
"""Positions of one product at most: more at a time were no faster, and what they make no longer fits into a cache."""
SPREAD = 0.02
"""Standard deviation of random weights, about that of a trained model's."""


class BareProducts:
    """The weights of a dense decoder, random; times are processor seconds of this process, by one thread."""

    def __init__(self, folder: ModelFolder, dtype: torch.dtype) -> None:
        torch.set_num_threads(1)
        config = folder.text_config
        hidden, wide, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
        size = config.get("head_dim") or hidden // heads
        asked, kept = heads * size, config["num_key_value_heads"] * size
        shapes = ((asked + 2 * kept, hidden), (hidden, asked), (2 * wide, hidden), (hidden, wide))
        self._layers = [_random(shape, dtype) for _ in range(folder.layers) for shape in shapes]
        self._head = [_random((config["vocab_size"], hidden), dtype)]

    def layers(self, rows: int, *, steps: int = 1, at_a_time: int = AT_A_TIME) -> float:
        """So many passes of `rows` positions through all layers; `at_a_time`: of them in a product."""
        return _seconds(self._layers, rows, steps, at_a_time)

    def head(self, rows: int, *, steps: int = 1, at_a_time: int = AT_A_TIME) -> float:
        """Logits of `rows` positions, so many times."""
        return _seconds(self._head, rows, steps, at_a_time)


def _random(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    return (SPREAD * torch.randn(shape)).to(dtype)


def _seconds(weights: Sequence[torch.Tensor], rows: int, steps: int, at_a_time: int) -> float:
    sizes = [min(at_a_time, rows - first) for first in range(0, rows, at_a_time)]
    given = {
        (size, one.shape[1]): torch.randn(size, one.shape[1]).to(one.dtype) for size in {*sizes} for one in weights
    }
    began = time.process_time()
    with torch.inference_mode():
        for _ in range(steps):
            for one in weights:
                for size in sizes:
                    torch.nn.functional.linear(given[size, one.shape[1]], one)
    return time.process_time() - began
