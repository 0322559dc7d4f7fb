"""Matrix products of one shape only, so that a row's bits do not depend on how many rows stand beside it.

CPU libraries choose a kernel by the shape: a product of one row (decode) sums in another order than one of a thousand
(prefill). Cut into blocks of a fixed number of rows, the last one filled up with zeros, every product has the same
shape and takes the same kernel; within it, rows do not mix.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

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
