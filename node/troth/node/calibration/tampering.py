"""What a dishonest node changes in its model: weights, activations, attention cache.

Each function changes a `Stack` in place; those that change only layers take a node's `LayerSlice` as well. Vectors
(norms) stay as they are, as real quantised engines leave them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from troth.node.calibration.stack import Stack
from troth.node.models.quantise import round_trip

FP8 = torch.float8_e4m3fn
FP8_LARGEST = 448.0
Change = Callable[[Stack], None]


class Layered(Protocol):
    """What has decoder layers: a `Stack`, or the `LayerSlice` of a node's engine."""

    @property
    def layers(self) -> Sequence[Any]:
        """The decoder layers, transformers' own modules."""


def quantise_weights(stack: Layered, bits: int) -> None:
    """Weight-only integers, symmetric, a scale per output channel."""
    for matrix in _matrices(stack):
        matrix.copy_(round_trip(matrix, bits))


def fp8_weights(stack: Layered) -> None:
    """Weight-only float8 (e4m3), a scale per output channel."""
    for matrix in _matrices(stack):
        matrix.copy_(through_fp8(matrix, dim=1))


def narrow_weights(stack: Layered, dtype: torch.dtype) -> None:
    """Weights rounded to a number format of half the size, computed with in the class's own."""
    for matrix in _matrices(stack):
        matrix.copy_(matrix.to(dtype))


def tensor_float32(stack: Layered) -> None:
    """Products as a GPU's TF32 mode takes them: weights and inputs of each matrix with ten bits of mantissa."""
    for matrix in _matrices(stack):
        matrix.copy_(_ten_bits(matrix))
    for module in _linears(stack):
        module.register_forward_pre_hook(_ten_bit_inputs)


def disturb_weights(stack: Layered, share: float) -> None:
    """Each weight times 1 + share x a standard normal: what a light fine-tune does."""
    generator = torch.Generator().manual_seed(20260101)
    for matrix in _matrices(stack):
        noise = torch.randn(matrix.shape, generator=generator)
        matrix.copy_((matrix.float() * (1 + share * noise)).to(matrix.dtype))


def int8_activations(stack: Layered) -> None:
    """W8A8: int8 weights, and inputs of each matrix as int8 with a scale per position."""
    quantise_weights(stack, 8)
    for module in _linears(stack):
        module.register_forward_pre_hook(_int8_inputs)


def fp8_cache(stack: Stack) -> None:
    """Keys and values kept as float8, a scale per head and position."""
    stack.cache = _Fp8Cache


def rounded(matrix: torch.Tensor, bits: int, group: int = 0) -> torch.Tensor:
    """A matrix through symmetric integers of ``bits`` bits, a scale per row, or per ``group`` columns of a row where
    they divide it."""
    levels = 2 ** (bits - 1) - 1
    shape = matrix.shape
    parts = matrix.double().reshape(shape[0], -1, group if group and shape[1] % group == 0 else shape[1])
    scale = (parts.abs().amax(dim=-1, keepdim=True) / levels).clamp_min(1e-30)
    return ((parts / scale).round().clamp(-levels, levels) * scale).reshape(shape).to(matrix.dtype)


def rounded_weights(
    stack: Layered, rule: Callable[[torch.Tensor], torch.Tensor], part: str = "", every: int = 1
) -> None:
    """Put the matrices of every ``every``-th layer whose name holds ``part`` through ``rule``."""
    for index, layer in enumerate(stack.layers):
        if index % every:
            continue
        for name, module in layer.named_modules():
            if isinstance(module, torch.nn.Linear) and part in name:
                module.weight = torch.nn.Parameter(rule(module.weight.detach().clone()), requires_grad=False)


def integer_cache(stack: Stack, bits: int, group: int = 0) -> None:
    """Keep keys and values as integers, a scale per head and position, or per ``group`` of dimensions."""
    stack.cache = partial(_IntegerCache, bits, group)


def skip_layers(stack: Stack, skipped: frozenset[int]) -> None:
    """Leave layers out."""
    stack.skipped = skipped


class _Fp8Cache(DynamicCache):  # type: ignore[misc]
    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return super().update(through_fp8(key_states, -1), through_fp8(value_states, -1), *rest, **named)


class _IntegerCache(DynamicCache):  # type: ignore[misc]
    def __init__(self, bits: int, group: int) -> None:
        super().__init__()
        self._rule = partial(_last_rounded, bits=bits, group=group)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return super().update(self._rule(key_states), self._rule(value_states), *rest, **named)


def _last_rounded(states: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    return rounded(states.reshape(-1, states.shape[-1]), bits, group).reshape(states.shape)


def _linears(stack: Layered) -> Iterator[torch.nn.Linear]:
    for layer in stack.layers:
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                yield module


def _matrices(stack: Layered) -> Iterator[torch.Tensor]:
    """Every weight matrix, as a tensor of its own that can be written: the loaded ones are mapped from the file."""
    for module in _linears(stack):
        module.weight = torch.nn.Parameter(module.weight.detach().clone(), requires_grad=False)
        yield module.weight


def through_fp8(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """A tensor through float8 (e4m3) and back, a scale per slice along `dim`."""
    scale = tensor.float().abs().amax(dim=dim, keepdim=True).clamp_min(1e-12) / FP8_LARGEST
    return ((tensor.float() / scale).to(FP8).float() * scale).to(tensor.dtype)


def _int8_inputs(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    given = inputs[0]
    scale = given.float().abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / 127
    return (((given.float() / scale).round() * scale).to(given.dtype), *inputs[1:])


def _ten_bits(values: torch.Tensor) -> torch.Tensor:
    """float32 rounded to TF32's mantissa, ties to even."""
    dropped = 13
    words = values.contiguous().view(torch.int32)
    rounding = (1 << (dropped - 1)) - 1 + ((words >> dropped) & 1)
    return ((words + rounding) & -(1 << dropped)).view(torch.float32)


def _ten_bit_inputs(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (_ten_bits(inputs[0]), *inputs[1:])
