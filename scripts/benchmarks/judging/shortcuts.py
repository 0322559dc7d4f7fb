"""Attention that looks at less than the whole context, and weights that are somebody else's: further cheats.

Positions are left out for every query as a cache that dropped them would leave them out. Heads are left out where
their part of the output matrix is smallest, as pruning by magnitude does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache

from troth.node.calibration.stack import Stack
from troth.node.calibration.tampering import FP8, through_fp8

Kept = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the positions of queries (Q, 1) and keys (1, K): which keys a query sees, besides the causal rule."""
SINKS = 4
"""First positions that a sliding window keeps (Xiao et al. 2023)."""
SEED = 20261124


def window(width: int) -> Kept:
    """The last positions and the first few."""
    return lambda queries, keys: (queries - keys < width) | (keys < SINKS)


def without(first: int, end: int) -> Kept:
    """Without some positions of the prompt, once they are read."""
    return lambda queries, keys: (keys < first) | (keys >= end) | (queries < end)


def attend(name: str, kept: Kept | None = None, least: float = 0.0) -> str:
    """Make an attention known to transformers; ``least``: weights below it count nothing. Returns its name."""
    AttentionInterface.register(name, partial(_attention, kept=kept, least=least))
    AttentionMaskInterface.register(name, _no_mask)
    return name


def _no_mask(**_: Any) -> None:
    return None


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: Any,
    scaling: float | None = None,
    *,
    kept: Kept | None,
    least: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = (query @ key.transpose(2, 3)).float() * (scaling or 1 / math.sqrt(query.shape[-1]))
    count, keys = query.shape[2], torch.arange(key.shape[2])[None]
    queries = torch.arange(key.shape[2] - count, key.shape[2])[:, None]
    seen = keys <= queries
    if kept is not None:
        seen &= kept(queries, keys)
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    if least:
        weights = weights.masked_fill(weights < least, 0.0)
        weights /= weights.sum(dim=-1, keepdim=True)
    return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous(), None


def fp8_cache(stack: Stack, group: int = 0) -> None:
    """Keys and values as float8: as they are, or with a scale per ``group`` of dimensions."""
    stack.cache = partial(_Fp8Groups, group)


class _Fp8Groups(DynamicCache):  # type: ignore[misc]
    def __init__(self, group: int) -> None:
        super().__init__()
        self._group = group

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return super().update(self._through(key_states), self._through(value_states), *rest, **named)

    def _through(self, states: torch.Tensor) -> torch.Tensor:
        if not self._group:
            return states.to(FP8).to(states.dtype)
        return through_fp8(states.reshape(*states.shape[:-1], -1, self._group), -1).reshape(states.shape)


def without_heads(stack: Stack, count: int, every: int = 1) -> None:
    """The heads with the smallest part of the output matrix give nothing, in every so many layers."""
    for layer in list(stack.layers)[::every]:
        matrix = layer.self_attn.o_proj
        width = layer.self_attn.head_dim
        weight = matrix.weight.detach().clone()
        sizes = weight.float().reshape(weight.shape[0], -1, width).square().sum(dim=(0, 2))
        for head in sizes.argsort()[:count].tolist():
            weight[:, head * width : (head + 1) * width] = 0
        matrix.weight = torch.nn.Parameter(weight, requires_grad=False)


def adapted(stack: Stack, rank: int, share: float) -> None:
    """Every MLP's last matrix with a low-rank part added, ``share`` as large as itself (Hu et al. 2021)."""
    generator = torch.Generator().manual_seed(SEED)
    for layer in stack.layers:
        matrix = layer.mlp.down_proj
        weight = matrix.weight.detach().float()
        left = torch.randn(weight.shape[0], rank, generator=generator)
        right = torch.randn(rank, weight.shape[1], generator=generator)
        added = left @ right
        added *= share * weight.norm() / added.norm()
        matrix.weight = torch.nn.Parameter((weight + added).to(matrix.weight.dtype), requires_grad=False)
