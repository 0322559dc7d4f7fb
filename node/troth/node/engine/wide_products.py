"""Products in bfloat16 on a processor that has no instructions for them: widened to float32, and rounded once.

Where its library has no kernels for bfloat16 (on x86 without AVX-512, say) torch multiplies number by number. From a
few rows on, it is several times faster to widen both factors and call the float32 kernel. That computes what kernels
with such instructions do: exact products of bfloat16 numbers, summed in float32 in some order, rounded once. One or two
rows read weights more than they compute, and stay with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FEWEST = 4
"""Rows of one product from which it is widened."""
WORTHWHILE = 8
"""Rows of a pass from which its products are; with fewer, torch's are as fast."""
AT_ONCE = 1 << 20
"""Weights of a layer that are widened at a time, 4 MB of float32: a head would take twice its own memory."""


@cache
def multiplies_bfloat16() -> bool:
    """Whether torch's library has kernels for products in bfloat16 on this processor."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def wide_products(states: torch.Tensor, fewest: int = WORTHWHILE) -> AbstractContextManager[Any]:
    """Within it products of a model are widened, where this processor needs that, for a pass of such states.

    Args:
        states: (sequences, positions, hidden size), in the dtype that the model computes in.
        fewest: rows of a pass that are worth it.
    """
    few = states.shape[0] * states.shape[1] < fewest
    if few or states.dtype != torch.bfloat16 or states.device.type != "cpu" or multiplies_bfloat16():
        return nullcontext()
    return _WideProducts()


class _WideProducts(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Of functions of torch that multiply matrices, those that decoders of transformers call."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        widened = WIDENED.get(function)
        if widened is None or not _all_bfloat16((*args, *named.values())) or _rows(widened, args) < FEWEST:
            return function(*args, **named)
        return widened(*args, **named)


def _all_bfloat16(given: tuple[Any, ...]) -> bool:
    """Whether all that a function was given are factors in bfloat16; with settings besides, torch computes."""
    return all(
        one is None or (isinstance(one, torch.Tensor) and one.dtype == torch.bfloat16 and not one.is_meta)
        for one in given
    )


def _rows(widened: Callable[..., torch.Tensor], factors: tuple[Any, ...]) -> int:
    """Of the first of two matrices, before which `addmm` takes what it adds."""
    left = factors[1 if widened is _addmm else 0]
    return int(left.numel() // left.shape[-1]) if left.ndim > 1 else 1


def wide_linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A linear layer in bfloat16, summed in float32 and rounded once; arguments are named as torch names them."""
    wide, made = input.float(), input.new_empty((*input.shape[:-1], len(weight)))
    rows = max(1, AT_ONCE // weight.shape[1])
    for first in range(0, len(weight), rows):
        part = slice(first, first + rows)
        added = None if bias is None else bias[part].float()
        made[..., part] = torch.nn.functional.linear(wide, weight[part].float(), added)
    return made


def _product(function: Callable[..., torch.Tensor], *factors: torch.Tensor) -> torch.Tensor:
    return function(*(one.float() for one in factors)).bfloat16()


def _matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _product(torch.matmul, left, right)


def _addmm(added: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _product(torch.addmm, added, left, right)


WIDENED: Mapping[Any, Callable[..., torch.Tensor]] = {
    torch.nn.functional.linear: wide_linear,
    torch.addmm: _addmm,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    torch.bmm: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.mm: _matmul,
    torch.Tensor.bmm: _matmul,
    torch.Tensor.__matmul__: _matmul,
}
