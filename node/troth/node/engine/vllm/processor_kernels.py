"""What vLLM's layers compute on a processor: widened products, and in exact classes those of a block of rows.

vLLM gives each linear layer a kernel of its own (`cpu_linear`) when the model is loaded. Here one is put around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from troth.node.engine.few_rows import TriedRows, cancels_alike, in_fixed_rows
from troth.node.engine.packed_products import Product
from troth.node.engine.wide_products import FEWEST, multiplies_bfloat16, wide_linear

Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""States, the layer's weight (empty, where the kernel keeps it in an order of its own) and bias, to other states."""


def linear_layers(model: torch.nn.Module) -> list[Any]:
    """The layers of a model to which vLLM gave a kernel for processors: those with whole weights."""
    return [module for module in model.modules() if hasattr(module, "cpu_linear")]


def widen(layer: Any) -> None:
    """Give a layer in bfloat16 products that are summed in float32, on a processor without instructions for bfloat16:
    vLLM leaves those to torch, which multiplies number by number (`wide_products`)."""
    plain, weight = layer.cpu_linear, layer.weight
    if weight.dtype != torch.bfloat16 or weight.ndim != 2 or not weight.numel() or multiplies_bfloat16():
        return

    def linear(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide = states.dtype == torch.bfloat16 and states.numel() // states.shape[-1] >= FEWEST
        made: torch.Tensor = (wide_linear if wide else plain)(states, weight, bias)
        return made

    layer.cpu_linear = linear


def fix_rows(layer: Any, rows: int) -> None:
    """Have a layer's product give each row the bits that it has among so many; 0: as vLLM computes it."""
    layer.troth_linear = getattr(layer, "troth_linear", layer.cpu_linear)
    layer.cpu_linear = FixedRows(layer.troth_linear, rows) if rows else layer.troth_linear


class FixedRows:
    """A layer's product, over `rows` positions at a time or over another number that is seen to give the same bits."""

    def __init__(self, linear: Linear, rows: int) -> None:
        self._linear = linear
        self._rows = rows
        self._tried: TriedRows | None = None

    def __call__(self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """A layer gives the same weight and bias each time."""
        if self._linear is torch.nn.functional.linear:
            # What vLLM does not pack would be tried with another kernel than its own.
            return in_fixed_rows(lambda part: self._linear(part, weight, bias), states, self._rows)
        if self._tried is None:
            self._tried = self._begin(states, weight, bias)
        return self._tried(states)

    def _begin(self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> TriedRows:
        def product(part: torch.Tensor) -> torch.Tensor:
            return self._linear(part, weight, bias)

        # Where the kernel keeps the weight, only what it computes says how many columns there are.
        height = product(states[..., :1, :]).shape[-1]
        like = states.new_empty((height, states.shape[-1]), device="meta")

        def cancels(count: int) -> bool:
            threads = torch.get_num_threads()
            return cancels_alike(like, self._rows, count, biased=bias is not None, threads=threads, library=kernel_with)

        return TriedRows(product, self._rows, cancels)


def kernel_with(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """The product that vLLM's layers have with a weight (other width, width)."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    layer: Any = torch.nn.Module()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    # Some kernels want biases in another dtype, which vLLM gives them here.
    layer.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
    dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    widen(layer)
    return lambda states: layer.cpu_linear(states, layer.weight, layer.bias)


def attend_one_by_one(wanted: bool) -> None:
    """Tell vLLM's CPU attention that each position is a sequence of one query, or stop telling it so.

    Its kernel cuts the keys of a tile of queries so that both fit into the processor's cache, and sums part by part. So
    how a row is summed hangs on how many queries are in its step, as soon as its keys are too many for one part: from
    position 480 on in float32, and 649 in bfloat16, on a processor that was tried. With one query in each tile, a
    prefill cuts them as a step does that writes.
    """
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder as Builder

    plain = getattr(Builder, "troth_build", Builder.build)
    Builder.troth_build = plain

    def build(self: Any, common_prefix_len: int, batch: Any, fast_build: bool = False) -> Any:
        return plain(self, common_prefix_len, single_queries(batch), fast_build)

    Builder.build = build if wanted else plain


def single_queries(batch: Any) -> Any:
    """What vLLM says of a step's sequences, with a sequence for each of its queries: the last of so many keys."""
    starts, seen = batch.query_start_loc, batch.seq_lens
    counts = starts[1:] - starts[:-1]
    sequence = torch.repeat_interleave(torch.arange(len(counts)), counts)
    queries = torch.arange(len(sequence) + 1, dtype=starts.dtype)
    keys = (seen[sequence] - starts[1:][sequence] + queries[1:]).to(seen.dtype)
    return replace(
        batch,
        query_start_loc=queries,
        query_start_loc_cpu=queries,
        seq_lens=keys,
        num_reqs=len(sequence),
        max_query_len=1,
        block_table_tensor=batch.block_table_tensor[sequence],
    )
