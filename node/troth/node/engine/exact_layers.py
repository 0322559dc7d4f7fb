"""A slice whose decode gives the bits of its prefill: every product and every attention has a shape of its own choice.

Matrix products run over `ROWS` positions at a time (`fixed_rows`). Attention runs over blocks of `ROWS` queries that
begin at multiples of it, against all keys up to the block's end: the same shapes whether one position of the block is
new or all of them. What a shape leaves over is filled with zeros and masked, and adds exactly nothing.

Matrix products of one shape only, so that a row's bits do not depend on how many rows stand beside it.

CPU libraries choose a kernel by the shape: a product of one row (decode) sums in another order than one of a thousand
(prefill). Cut into blocks of a fixed number of rows, the last one filled up with zeros, every product has the same
shape and takes the same kernel; within it, rows do not mix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface

from troth.node.engine.layers import LayerSlice

Product = Callable[[torch.Tensor], torch.Tensor]


def in_fixed_rows(product: Product, states: torch.Tensor, rows: int) -> torch.Tensor:
    """`product` over (positions, width) states, called with exactly `rows` of them at a time."""
    count = states.shape[0]
    if count == rows:
        return product(states)
    blocks = -(-count // rows)
    filled = states.new_zeros((blocks * rows, states.shape[1]))
    filled[:count] = states
    made = [product(part) for part in filled.split(rows)]
    return (made[0] if blocks == 1 else torch.cat(made))[:count]


ROWS = 16
"""Positions of a block. More cost a decode step more, fewer a prefill; the bits depend on it, so it is part of the
class (by its probe)."""
NAME = "troth_blocks"


class ExactSlice(LayerSlice):
    """See `LayerSlice`; the same computation in fixed shapes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.config._attn_implementation = NAME

    def _layer(self, *arguments: Any) -> torch.nn.Module:
        # Where layers are made, since a slice that moves makes others later.
        layer = super()._layer(*arguments)
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                _fix(module)
        return layer


def _fix(module: torch.nn.Linear) -> None:
    product = module.forward

    def fixed(states: torch.Tensor) -> torch.Tensor:
        made = in_fixed_rows(product, states.reshape(-1, states.shape[-1]), ROWS)
        return made.reshape(*states.shape[:-1], made.shape[-1])

    module.forward = fixed  # type: ignore[method-assign, unused-ignore]


def attend_in_blocks(  # noqa: PLR0917 - the order of the arguments is that of transformers
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls for one layer; queries are the last positions that the keys have.

    Shapes: query (1, heads, new, head size), key and value (1, key-value heads, all, head size), mask (1, 1, new, all)
    of booleans. Returns (1, new, heads, head size).
    """
    end, start = key.shape[2], key.shape[2] - query.shape[2]
    made = []
    for block in range(start // ROWS * ROWS, end, ROWS):
        first, last = max(start, block), min(end, block + ROWS)
        place = slice(first - block, last - block)
        asked = _filled(query[:, :, first - start : last - start], place.start)
        keys, values = _until(key, block + ROWS), _until(value, block + ROWS)
        # A row that stands for nothing attends to the first key: attending to none would be no number.
        mask = torch.zeros((1, 1, ROWS, block + ROWS), dtype=torch.bool, device=query.device)
        mask[..., 0] = True
        seen = min(end, block + ROWS)
        mask[:, :, place, :seen] = attention_mask[:, :, first - start : last - start, :seen]
        out = torch.nn.functional.scaled_dot_product_attention(
            asked, keys, values, attn_mask=mask, scale=scaling, enable_gqa=True
        )
        made.append(out[:, :, place])
    return torch.cat(made, dim=2).transpose(1, 2).contiguous(), None


def _filled(query: torch.Tensor, first: int) -> torch.Tensor:
    if query.shape[2] == ROWS:
        return query
    filled = query.new_zeros((*query.shape[:2], ROWS, query.shape[3]))
    filled[:, :, first : first + query.shape[2]] = query
    return filled


def _until(states: torch.Tensor, end: int) -> torch.Tensor:
    if states.shape[2] >= end:
        return states[:, :, :end]
    missing = states.new_zeros((*states.shape[:2], end - states.shape[2], states.shape[3]))
    return torch.cat([states, missing], dim=2)


AttentionInterface.register(NAME, attend_in_blocks)
