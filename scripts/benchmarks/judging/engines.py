"""Honest engines whose bits no verifier here has: what the hunt claims a node's rows from.

A verifier computes a prefill, the same in pieces, and one with attention in plain operations; batches of 2 and more
give the same bits in bfloat16. So a node that differs in nothing but its pieces or its batch is mostly the verifier's
own run, bit for bit, and shows nothing. These differ as engines in use do: one text alone, token by token, whose
products are of a matrix and a vector; attention in blocks with unnormalised bfloat16 weights and float32 sums (the
flash kernels), or in float32 altogether; pointwise operations that a compiler fuses, so that only their result is
rounded; products whose sums are taken in two halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from benchmarks.judging.ways import DECODE, HONEST, WHOLE, Way
from troth.node.calibration.stack import Stack

BLOCK = 16
"""Keys of a block of the flash kernel: fewer than real ones take, since the texts of a hunt are short."""
ALONE = 4
"""Of so many generations, one runs texts alone."""
Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From scaled float32 scores, which keys a query may not see, values, and an empty result in float32."""


def engines(dtype: int, generation: int = 0) -> tuple[Way, ...]:
    """Honest ways of one class, as many in each generation of a hunt. In float32 every order of a sum has other bits,
    so that pieces and batches do. In bfloat16 one text alone costs as much as all others, and has every fourth turn."""
    if not dtype:
        return (HONEST[0], HONEST[2], Way("eager decode", attention="eager"), Way("chunks of 5", piece=5))
    flash, wide = _attend("troth flash", _flash), _attend("troth float32", _wide)
    return (
        Way("math attention", piece=5, attention="math") if generation % ALONE else Way("alone", batch=1),
        Way("flash attention", attention=flash),
        Way("float32 attention", piece=WHOLE, attention=wide),
        Way("fused", _fused, piece=WHOLE, attention=flash, kept=True),
        Way("sums in halves", _in_halves, piece=WHOLE, kept=True),
        Way("fused, sums in halves", _otherwise_throughout, piece=DECODE, attention=wide, kept=True),
    )


def _attend(name: str, kernel: Kernel) -> str:
    AttentionInterface.register(name, partial(_attention, kernel))
    AttentionMaskInterface.register(name, lambda **_: None)
    return name


def _attention(  # noqa: PLR0917 -- as transformers calls it
    kernel: Kernel,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Scores in float32 of what is rounded to the class's format; the kernel does the rest."""
    groups, dtype = query.shape[1] // key.shape[1], module.o_proj.weight.dtype
    key, value = (one.to(dtype).repeat_interleave(groups, dim=1) for one in (key, value))
    rounded = query.to(dtype).float()
    scores = rounded @ key.float().transpose(2, 3) * (scaling or 1 / math.sqrt(query.shape[-1]))
    count, keys = query.shape[2], torch.arange(key.shape[2])[None]
    hidden = keys > torch.arange(key.shape[2] - count, key.shape[2])[:, None]
    return kernel(scores, hidden, value, torch.zeros_like(rounded)).transpose(1, 2).contiguous(), None


def _wide(scores: torch.Tensor, hidden: torch.Tensor, value: torch.Tensor, _empty: torch.Tensor) -> torch.Tensor:
    """All of it in float32; the result is rounded."""
    return (scores.masked_fill(hidden, -math.inf).softmax(dim=-1) @ value.float()).to(value.dtype)


def _flash(scores: torch.Tensor, hidden: torch.Tensor, value: torch.Tensor, summed: torch.Tensor) -> torch.Tensor:
    """Dao 2023: block by block, weights before the division rounded to bfloat16, their sums and products in float32."""
    largest = torch.full((*scores.shape[:3], 1), -1e30)
    total = torch.zeros_like(largest)
    for start in range(0, scores.shape[3], BLOCK):
        unseen = hidden[:, start : start + BLOCK]
        block = scores[..., start : start + BLOCK].masked_fill(unseen, -1e30)
        larger = torch.maximum(largest, block.amax(dim=-1, keepdim=True))
        weights, shrink = torch.exp(block - larger).masked_fill(unseen, 0.0), torch.exp(largest - larger)
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        part = weights.to(value.dtype).float() @ value[:, :, start : start + BLOCK].float()
        summed, largest = summed * shrink + part, larger
    return (summed / total).to(value.dtype)


def _fused(stack: Stack) -> None:
    """Norms, activations and rotations as a compiler fuses them: in float32, and rounded once."""
    for layer in stack.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.forward = partial(_norm, norm)
        layer.mlp.forward = partial(_gated, layer.mlp)
        layer.self_attn.register_forward_pre_hook(_wide_rotations, with_kwargs=True)


def _norm(norm: Any, states: torch.Tensor) -> torch.Tensor:
    wide = states.float()
    wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + norm.variance_epsilon)
    return (wide * norm.weight.float()).to(states.dtype)


def _gated(block: Any, states: torch.Tensor) -> torch.Tensor:
    gate, raised = block.gate_proj(states).float(), block.up_proj(states).float()
    made: torch.Tensor = block.down_proj((torch.nn.functional.silu(gate) * raised).to(states.dtype))
    return made


def _wide_rotations(_module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Queries and keys leave the rotation in float32; attention rounds them."""
    return given, named | {"position_embeddings": tuple(one.float() for one in named["position_embeddings"])}


def _in_halves(stack: Stack) -> None:
    """Every product's sum in float32, as two halves that are added and rounded once."""
    for layer in stack.layers:
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                middle = module.in_features // 2
                first, second = (part.float().t() for part in (module.weight[:, :middle], module.weight[:, middle:]))
                module.forward = partial(_product, first, second)


def _product(first: torch.Tensor, second: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    wide, middle = states.float(), len(first)
    return (wide[..., :middle] @ first + wide[..., middle:] @ second).to(states.dtype)


def _otherwise_throughout(stack: Stack) -> None:
    _fused(stack)
    _in_halves(stack)
