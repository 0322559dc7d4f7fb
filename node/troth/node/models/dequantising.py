"""The numbers that packed tensors stand for: one function for each way in which engines keep quantised weights.

All take the tensors of one weight by how their names end, the weight's shape and a class' dtype, and give the weight in
that dtype. Scales are rounded to it first, as engines do that hold them in it (vLLM's `params_dtype`), then numbers are
multiplied in float32, and the product is rounded once. Where every number times its scale fits into the dtype, as
MXFP4's powers of two do in bfloat16, nothing is rounded.

Shapes are those that `quantised` looked at before; nothing here trusts a file for a size.

Sources: AutoAWQ's `WQLinear_GEMM` and vLLM's `_convert_awq_to_standard_format`; vLLM's `uint4b8` and `uint8b128` for
GPTQ; `unpack_from_int32` and `dequantize` of compressed-tensors; `convert_moe_packed_tensors` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
WORD = 32
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of AWQ's the first, second, ... of eight outputs lies."""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The sixteen numbers of four bits, as MXFP4 and NVFP4 have them."""
E8M0_ONE = 127
"""The byte of an exponent that stands for one."""


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The last axis of int32 words as numbers from 0 on; the lowest bits come first."""
    shifts = words.new_tensor(range(0, WORD, bits))
    numbers = (words[..., None] >> shifts) & ((1 << bits) - 1)
    return numbers.reshape(*words.shape[:-1], -1)


def awq(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Words of `.qweight` (inputs, outputs / 8) and `.qzeros` (groups, outputs / 8); `.scales` (groups, outputs)."""
    places = list(AWQ_PLACES)
    numbers, zeros = (
        unpack(parts[name], 4).unflatten(-1, (-1, len(places)))[..., places].flatten(-2)
        for name in (".qweight", ".qzeros")
    )
    return _scaled((numbers.T, zeros.T), parts[".scales"].T, shape, dtype)


def gptq(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype, *, bits: int) -> torch.Tensor:
    """Words of `.qweight` (inputs / factor, outputs); `.scales` (groups, outputs).

    What is symmetric has its zero in the middle. vLLM reads neither `.qzeros` nor `.g_idx`, which import compares with
    that, since other readers take them.
    """
    numbers = unpack(parts[".qweight"].T, bits)
    return _scaled((numbers, 1 << (bits - 1)), parts[".scales"].T, shape, dtype)


def packed(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype, *, bits: int) -> torch.Tensor:
    """Words of `.weight_packed` (outputs, inputs / factor, filled up), `.weight_scale` (outputs, groups), words of
    `.weight_zero_point` (outputs / factor, groups) and the groups of inputs, `.weight_g_idx`, if they are there."""
    outputs, inputs = shape
    numbers = unpack(parts[".weight_packed"], bits)[:, :inputs]
    told = parts.get(".weight_zero_point")
    zeros = 1 << (bits - 1) if told is None else unpack(told.T, bits).T[:outputs]
    return _scaled((numbers, zeros), parts[".weight_scale"], shape, dtype, order=parts.get(".weight_g_idx"))


def plain(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype, *, rows: int) -> torch.Tensor:
    """Numbers of eight bits in `.weight`; `.weight_scale` (outputs / rows, groups), or one for all.

    Args:
        rows: outputs that share a scale; 1 but in blocks.
    """
    zeros = parts.get(".weight_zero_point")
    found = parts[".weight"], 0 if zeros is None else zeros
    return _scaled(found, parts[".weight_scale"], shape, dtype, order=parts.get(".weight_g_idx"), rows=rows)


def fp8(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype, *, block: Shape | None) -> torch.Tensor:
    """`.weight` in FP8 times `.weight_scale`, one for all, or `.weight_scale_inv` of blocks; scales are not rounded,
    since engines of FP8 keep them in float32."""
    if block is None:
        return (parts[".weight"].float() * parts[".weight_scale"].float()).to(dtype)
    scales = parts[".weight_scale_inv"]
    if not scales.is_floating_point():
        scales = _exponents(scales)
    wide = _each(_each(scales.float(), block[0], 0, shape[0]), block[1], 1, shape[1])
    return (parts[".weight"].float() * wide).to(dtype)


def mxfp4(parts: Mapping[str, torch.Tensor], shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """`_blocks` (experts, outputs, groups, 16 bytes) with `_scales` (experts, outputs, groups), as (experts, inputs,
    outputs); one expert after the other, since all of them in float32 would be several layers."""
    made = parts["_blocks"].new_empty(shape, dtype=dtype)
    for expert, (blocks, scales) in enumerate(zip(parts["_blocks"], parts["_scales"], strict=True)):
        made[expert] = (_quarters(blocks) * _exponents(scales)[..., None]).flatten(1).T.to(dtype)
    return made


def nvfp4(parts: Mapping[str, torch.Tensor], _shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """`.weight_packed` (outputs, inputs / 2 bytes), scales of 16 numbers in FP8, divided by `.weight_global_scale`."""
    scales = parts[".weight_scale"].float() / parts[".weight_global_scale"].float()
    numbers = _quarters(parts[".weight_packed"])
    return (numbers.unflatten(1, (scales.shape[1], -1)) * scales[..., None]).flatten(1).to(dtype)


def _scaled(
    numbers: tuple[torch.Tensor, torch.Tensor | int],
    scales: torch.Tensor,
    shape: Shape,
    dtype: torch.dtype,
    *,
    order: torch.Tensor | None = None,
    rows: int = 1,
) -> torch.Tensor:
    """(outputs, inputs) numbers less their zero points, times scales, both (outputs / rows, groups) or one for all.

    Args:
        order: the group of each input; None where inputs of a group lie side by side.
    """

    def placed(held: torch.Tensor) -> torch.Tensor:
        if held.numel() == 1:
            return held.reshape(1, 1)
        high = _each(held, rows, 0, shape[0])
        return high[:, order.long()] if order is not None else _each(high, shape[1] // held.shape[1], 1, shape[1])

    found, zeros = numbers
    centred = found.float() - (zeros if isinstance(zeros, int) else placed(zeros.float()))
    return (centred * placed(scales.to(dtype).float())).to(dtype)


def _each(held: torch.Tensor, count: int, axis: int, most: int) -> torch.Tensor:
    return held.repeat_interleave(count, axis).narrow(axis, 0, most)


def _quarters(data: torch.Tensor) -> torch.Tensor:
    """Float32 numbers of the last axis of bytes; the lower half comes first."""
    import torch

    values = torch.tensor(E2M1, device=data.device)
    return values[torch.stack((data & 15, data >> 4), -1).flatten(-2).int()]


def _exponents(data: torch.Tensor) -> torch.Tensor:
    """2 to the power of bytes, float32; 255 is no number, and becomes infinite."""
    import torch

    return torch.ldexp(torch.ones_like(data, dtype=torch.float32), data.int() - E8M0_ONE)
