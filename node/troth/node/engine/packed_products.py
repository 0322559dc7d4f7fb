"""Products with weights that were laid out for the processor's kernel beforehand, once.

A library that is given a matrix as it lies in a file copies it into its kernel's order at each product. For the one
position of a decode step that costs more than the product. oneDNN, which torch brings, keeps such a layout. Its kernels
then sum in one order for nearly all numbers of rows, which `few_rows` looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

from troth.node.engine.wide_products import multiplies_bfloat16

Product = Callable[[torch.Tensor], torch.Tensor]
"""Of states (positions, width) with one matrix: (positions, other width)."""
Library = Callable[[torch.Tensor, torch.Tensor | None], Product]
"""Makes the product with a weight (other width, width) and perhaps a bias."""
LAID_OUT_FOR = 16
"""Rows that oneDNN is told to expect; other numbers have the same bits, and are as fast."""


def product_with(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Product:
    """The product with a linear layer's weight (other width, width): packed, where this processor and torch can."""
    if not packs(weight.dtype, weight.device):
        return partial(torch.nn.functional.linear, weight=weight, bias=bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), LAID_OUT_FOR)

    def product(states: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, laid_out, bias, "none", [], "")
        return made

    return product


def packs(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether weights of a dtype can be laid out for products there."""
    if device.type != "cpu" or not _library_packs():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and multiplies_bfloat16())


@cache
def _library_packs() -> bool:
    wanted = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in wanted)
