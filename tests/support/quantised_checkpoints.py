"""Tiny quantised checkpoints, packed as the libraries that write real ones pack them.

AWQ: `WQLinear_GEMM.from_linear` of AutoAWQ (awq/modules/linear/gemm.py), whose words hold outputs in the order
0 2 4 6 1 3 5 7. GPTQ: `QuantLinear.pack` of GPTQModel (nn_modules/qlinear). FP8: `FP8Linear` of transformers with
blocks, `Fp8LinearMethod` of vLLM with one scale. MXFP4: gpt-oss' own files, which `Mxfp4GptOssExperts` of transformers
reads. compressed-tensors: `pack_to_int32` and `NaiveQuantizationCompressor` of that library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from support.tiny_decoders import VOCABULARY, write_tiny_decoder

GROUP, BLOCK = 32, 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
WEIGHTS = "model.safetensors"
Tensors = dict[str, torch.Tensor]
Written = Callable[[str, torch.Tensor], Tensors]


def write_quantised(form: str, path: Path, **sizes: Any) -> Path:
    """A model folder in one of `FORMS`: every product of its layers is quantised, the rest is float.

    Args:
        sizes: other settings of config.json than those of the tiny models.
    """
    family, settings, written = FORMS[form]
    write_tiny_decoder(family, path, **{"intermediate_size": 64, **sizes})
    quantise(path, settings, written)
    vocabulary = {str(number): number for number in range(VOCABULARY)}
    (path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocabulary}}))
    return path


def quantise(path: Path, settings: Mapping[str, Any], written: Written) -> None:
    """Quantise the products of a folder's layers, in place, by rounding to the nearest number."""
    tensors: Tensors = {}
    for name, tensor in load_file(path / WEIGHTS).items():
        quantised = name.endswith(("_proj.weight", "w1.weight", "w2.weight", "w3.weight")) or _is_experts(name)
        tensors |= written(name, tensor) if quantised else {name: tensor.to(torch.bfloat16)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / WEIGHTS)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))


def _is_experts(name: str) -> bool:
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def _levels(weight: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(outputs, inputs) from 0 on, and (outputs, groups) of scales and zero points."""
    cut = weight.float().reshape(weight.shape[0], -1, GROUP)
    low, high = cut.amin(2), cut.amax(2)
    scale = (high - low).clamp_min(1e-6) / (2**bits - 1)
    zero = (-low / scale).round().clamp(0, 2**bits - 1)
    levels = ((cut / scale[..., None]).round() + zero[..., None]).clamp(0, 2**bits - 1)
    return levels.reshape(weight.shape).to(torch.int64), scale.half(), zero.to(torch.int64)


def _symmetric(weight: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(outputs, inputs) from 0 on, of which the middle is zero, and (outputs, groups) of scales."""
    cut, middle = weight.float().reshape(weight.shape[0], -1, GROUP), 2 ** (bits - 1)
    scale = cut.abs().amax(2).clamp_min(1e-6) / (middle - 1)
    levels = ((cut / scale[..., None]).round() + middle).clamp(0, 2 * middle - 1)
    return levels.reshape(weight.shape).to(torch.int64), scale.half()


def pack(levels: torch.Tensor, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """The last axis into words of 32 bits."""
    factor = 32 // bits
    cut = levels.reshape(*levels.shape[:-1], -1, factor)[..., list(order or range(factor))]
    words = (cut << torch.arange(0, 32, bits)).sum(-1) & 0xFFFFFFFF
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def awq(name: str, weight: torch.Tensor) -> Tensors:
    """Words hold outputs."""
    layer = name.removesuffix(".weight")
    levels, scale, zero = _levels(weight, 4)
    return {
        f"{layer}.qweight": pack(levels.T, 4, AWQ_ORDER),
        f"{layer}.qzeros": pack(zero.T, 4, AWQ_ORDER),
        f"{layer}.scales": scale.T,
    }


def gptq(bits: int) -> Written:
    """Words hold inputs; zero points are one too small, as GPTQ's first version writes them."""

    def written(name: str, weight: torch.Tensor) -> Tensors:
        layer = name.removesuffix(".weight")
        levels, scale = _symmetric(weight, bits)
        zeros = torch.full(scale.T.shape, 2 ** (bits - 1) - 1)
        return {
            f"{layer}.qweight": pack(levels, bits).T,
            f"{layer}.qzeros": pack(zeros, bits),
            f"{layer}.scales": scale.T,
            f"{layer}.g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
        }

    return written


def fp8_blocks(name: str, weight: torch.Tensor) -> Tensors:
    """A scale for each block."""
    rows, columns = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-columns // BLOCK) * BLOCK)
    padded[:rows, :columns] = weight
    scale = padded.reshape(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK).abs().amax((1, 3)).clamp_min(1e-6) / 448
    each = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
    return {name: (weight / each).to(torch.float8_e4m3fn), f"{name}_scale_inv": scale}


def fp8_whole(name: str, weight: torch.Tensor) -> Tensors:
    """One scale for a weight, and one for what comes in."""
    scale = weight.abs().amax() / 448
    layer = name.removesuffix(".weight")
    return {
        name: (weight / scale).to(torch.float8_e4m3fn),
        f"{layer}.weight_scale": scale.reshape(1),
        f"{layer}.input_scale": torch.ones(1),
    }


def mxfp4(name: str, weight: torch.Tensor) -> Tensors:
    """(experts, inputs, outputs) as blocks of 32 inputs; what is no expert stays."""
    if not _is_experts(name):
        return {name: weight.to(torch.bfloat16)}
    turned = weight.transpose(1, 2)
    cut = turned.reshape(*turned.shape[:2], -1, 32)
    exponent = (cut.abs().amax(3).clamp_min(1e-6) / 4).log2().floor()
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scaled = cut / exponent.exp2()[..., None]
    nearest = (scaled.abs()[..., None] - values).abs().argmin(-1) + 8 * (scaled < 0)
    return {
        f"{name}_blocks": (nearest[..., ::2] + 16 * nearest[..., 1::2]).to(torch.uint8),
        f"{name}_scales": (exponent + 127).to(torch.uint8),
    }


def packed_words(name: str, weight: torch.Tensor) -> Tensors:
    """compressed-tensors' pack-quantized with zero points, whose words hold inputs, and outputs for zero points."""
    levels, scale, zero = _levels(weight, 4)
    return {
        f"{name}_packed": pack(levels, 4),
        f"{name}_scale": scale,
        f"{name}_zero_point": pack(zero.T, 4).T,
        f"{name}_shape": torch.tensor(weight.shape),
    }


def plain_words(dtype: torch.dtype, largest: int) -> Written:
    """compressed-tensors' int- and float-quantized with a scale for each output."""

    def written(name: str, weight: torch.Tensor) -> Tensors:
        scale = weight.abs().amax(1, keepdim=True) / largest
        scaled = weight / scale
        return {name: (scaled.round() if dtype == torch.int8 else scaled).to(dtype), f"{name}_scale": scale.bfloat16()}

    return written


def nvfp4(name: str, weight: torch.Tensor) -> Tensors:
    """compressed-tensors' nvfp4-pack-quantized: `NVFP4PackedCompressor`, the first of two inputs in the low half."""
    largest = torch.tensor(448.0 * 6)
    cut = weight.float().reshape(weight.shape[0], -1, 16)
    scale = (cut.abs().amax(2) / 6 * largest).to(torch.float8_e4m3fn)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scaled = cut * largest / scale.float().clamp_min(2**-9)[..., None]
    nearest = ((scaled.abs()[..., None] - values).abs().argmin(-1) + 8 * (scaled < 0)).reshape(weight.shape)
    return {
        f"{name}_packed": (nearest[:, ::2] + 16 * nearest[:, 1::2]).to(torch.uint8),
        f"{name}_scale": scale,
        f"{name}_global_scale": largest.reshape(1),
        f"{name.removesuffix('.weight')}.input_global_scale": torch.ones(1),
    }


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    """quantization_config of compressed-tensors with one group."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    }  # fmt: skip


GEMM = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
ORDERED = {"quant_method": "gptq", "group_size": GROUP, "desc_act": False, "sym": True}
WHOLE = {"num_bits": 8, "strategy": "channel", "symmetric": True}
FORMS: Mapping[str, tuple[str, dict[str, Any], Written]] = {
    "awq": ("llama", {**GEMM, "modules_to_not_convert": None}, awq),
    "awq of experts": ("mixtral", {**GEMM, "modules_to_not_convert": ["gate"]}, awq),
    "gptq": ("qwen3", {**ORDERED, "bits": 4}, gptq(4)),
    "gptq of 8 bits": ("qwen3", {**ORDERED, "bits": 8}, gptq(8)),
    "fp8 in blocks": (
        "qwen3",
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]},
        fp8_blocks,
    ),
    "fp8 of experts": ("mixtral", {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}, fp8_blocks),
    "fp8": ("llama", {"quant_method": "fp8", "activation_scheme": "static"}, fp8_whole),
    "mxfp4": (
        "gpt_oss",
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        mxfp4,
    ),
    "pack-quantized": (
        "llama",
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP, symmetric=False),
        packed_words,
    ),
    "int-quantized": ("llama", compressed("int-quantized", type="int", **WHOLE), plain_words(torch.int8, 127)),
    "float-quantized": (
        "llama",
        compressed("float-quantized", type="float", **WHOLE),
        plain_words(torch.float8_e4m3fn, 448),
    ),
    "nvfp4": (
        "llama",
        compressed("nvfp4-pack-quantized", type="float", num_bits=4, strategy="tensor_group", group_size=16),
        nvfp4,
    ),
}
"""Family, quantization_config, and how a weight is written."""
