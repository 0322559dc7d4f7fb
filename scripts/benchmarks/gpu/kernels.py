"""Rows of vLLM's Triton kernels in batches of many sizes, and their speed beside torch's libraries."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.figures import Figure
from benchmarks.gpu import Deadline

BATCHES = (*range(1, 18), 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 2047, 2048)
"""Rows of a product: around the tiles of 16, 128 and 256, and of the smallest sizes all."""
SHAPES = {"qkv": (4096, 6144), "out": (4096, 4096), "up": (4096, 28672), "down": (14336, 4096), "head": (4096, 128256)}
"""Rows and columns of an 8B model's weights."""
HEADS = ((32, 8, 64), (32, 8, 128), (16, 8, 256))
"""Heads, heads of keys and values, and their size."""
CONTEXTS = (*range(1, 18), 31, 32, 33, 255, 256, 257, 2048, 8191, 8192, 8193, 20_000)
CROWDS = (1, 2, 8, 9, 10, 16, 17, 64, 255, 256, 257)
PAGE = 32
TIMED = (1, 16, 256, 2048)
ROUNDS = 20


class Scale(NamedTuple):
    """What is tried."""

    batches: Sequence[int]
    shapes: dict[str, tuple[int, int]]
    heads: Sequence[tuple[int, int, int]]
    contexts: Sequence[int]
    crowds: Sequence[int]
    dtype: torch.dtype


FULL = Scale(BATCHES, SHAPES, HEADS, CONTEXTS, CROWDS, torch.bfloat16)
TINY = Scale((1, 2, 5), {"qkv": (64, 32)}, ((2, 1, 16),), (1, 9, 40), (1, 3), torch.float32)


def measure(device: str, deadline: Deadline, *, tiny: bool) -> list[Figure]:
    """Figures of all kernels. Raises ImportError where neither vLLM nor its packed files are there."""
    from vllm.model_executor.determinism import batch_invariant as kernels

    torch.manual_seed(1)
    scale = TINY if tiny else FULL
    kernels.resolve_tuned_matmul_configs()
    if device.startswith("cuda"):
        torch.backends.cuda.preferred_blas_library("cublaslt")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    ways = {"Triton": kernels.mm_batch_invariant, "cuBLASLt as vLLM sets it": torch.mm}
    figures = [one for name, way in ways.items() for one in _products(name, way, scale, device, deadline)]
    figures += _norms(kernels.rms_norm_batch_invariant, scale, device, deadline)
    figures += _attentions(scale, device, deadline)
    return [*figures, *_speeds(ways, scale, device, deadline)]


def _products(name: str, product: Any, scale: Scale, device: str, deadline: Deadline) -> Iterator[Figure]:
    wrong, tried, first = 0, 0, ""
    for shape, (rows, columns) in scale.shapes.items():
        if not deadline.allows(f"{name} {shape}"):
            continue
        states = torch.randn(max(scale.batches), rows, device=device).to(scale.dtype)
        weight = (torch.randn(columns, rows, device=device) / rows**0.5).to(scale.dtype).t()
        whole = product(states, weight)
        for batch in scale.batches:
            same = bool(torch.equal(product(states[:batch], weight), whole[:batch]))
            tried, wrong = tried + 1, wrong + (not same)
            first = first or ("" if same else f"first {shape} at {batch} rows")
        del weight, whole
    note = f"of {tried}; {', '.join(scale.shapes)}; {first or 'none'}"
    yield Figure(f"products whose rows depend on their batch, {name}", wrong, "sizes", reach=0, note=note)


def _norms(norm: Any, scale: Scale, device: str, deadline: Deadline) -> Iterator[Figure]:
    width = next(iter(scale.shapes.values()))[0]
    states = torch.randn(max(scale.batches), width, device=device).to(scale.dtype)
    weight = torch.randn(width, device=device).to(scale.dtype)
    whole = norm(states, weight)
    batches = [batch for batch in scale.batches if deadline.allows(f"norm of {batch}")]
    wrong = sum(not torch.equal(norm(states[:batch], weight), whole[:batch]) for batch in batches)
    yield Figure("norms whose rows depend on their batch, Triton", wrong, "sizes", reach=0, note=f"of {len(batches)}")


class _Cache:
    """Keys and values in pages, for sequences that all have the same past: the first one is looked at."""

    def __init__(self, heads: tuple[int, int, int], longest: int, scale: Scale, device: str) -> None:
        self._asked, kept, size = heads
        pages = -(-longest // PAGE)
        self._keys = torch.randn(pages, PAGE, kept, size, device=device).to(scale.dtype)
        self._values = torch.randn(pages, PAGE, kept, size, device=device).to(scale.dtype)
        self._pages = torch.randperm(pages, dtype=torch.int32, device=device)
        self._queries = torch.randn(longest, self._asked, size, device=device).to(scale.dtype)
        self._device, self._size = device, size

    def attend(self, lengths: Sequence[int], new: Sequence[int]) -> torch.Tensor:
        """Attention of the last `new` positions of sequences with so many; (all new positions, heads, size)."""
        from vllm.v1.attention.ops.triton_unified_attention import unified_attention

        queries = torch.cat([self._queries[end - count : end] for end, count in zip(lengths, new, strict=True)])
        out = torch.empty_like(queries)
        starts = [0, *itertools.accumulate(new)]
        unified_attention(
            q=queries,
            k=self._keys,
            v=self._values,
            out=out,
            cu_seqlens_q=torch.tensor(starts, dtype=torch.int32, device=self._device),
            max_seqlen_q=max(new),
            seqused_k=torch.tensor(lengths, dtype=torch.int32, device=self._device),
            max_seqlen_k=max(lengths),
            softmax_scale=self._size**-0.5,
            causal=True,
            window_size=(-1, -1),
            block_table=self._pages.expand(len(lengths), -1).contiguous(),
            softcap=0.0,
            q_descale=None,
            k_descale=None,
            v_descale=None,
        )
        return out


def _attentions(scale: Scale, device: str, deadline: Deadline) -> Iterator[Figure]:
    """A decoded position alone, among others with other pasts, and in a prefill of all positions before it."""
    wrong, tried, first = 0, 0, ""
    for heads in scale.heads:
        cache = _Cache(heads, max(scale.contexts), scale, device)
        for context in scale.contexts:
            if not deadline.allows(f"attention {heads[2]} at {context}"):
                continue
            alone = cache.attend([context], [1])[0]
            ways = {f"among {crowd}": _among(cache, context, crowd, scale.contexts) for crowd in scale.crowds}
            ways["in a prefill"] = cache.attend([context], [context])[-1]
            half = max(1, context // 2)
            ways["in a chunk"] = cache.attend([context], [half])[-1]
            for name, row in ways.items():
                same = bool(torch.equal(row, alone))
                tried, wrong = tried + 1, wrong + (not same)
                first = first or ("" if same else f"first {heads} at {context} {name}")
    note = f"of {tried}; contexts to {max(scale.contexts):,}, batches to {max(scale.crowds)}; {first or 'none'}"
    yield Figure("attention of a position that depends on its batch, Triton", wrong, "ways", reach=0, note=note)


def _among(cache: _Cache, context: int, crowd: int, contexts: Sequence[int]) -> torch.Tensor:
    short = [length for length in contexts if length <= 2048] or [context]
    others = [short[number % len(short)] for number in range(crowd - 1)]
    return cache.attend([*others, context], [*([1] * len(others)), 1])[-1]


def _speeds(ways: dict[str, Any], scale: Scale, device: str, deadline: Deadline) -> Iterator[Figure]:
    """Times of Triton's product over the library's, in turns."""
    for shape, (rows, columns) in scale.shapes.items():
        weight = torch.randn(columns, rows, device=device).to(scale.dtype).t()
        for batch in [size for size in TIMED if size <= max(scale.batches)]:
            if not deadline.allows(f"speed of {shape} at {batch}"):
                continue
            states = torch.randn(batch, rows, device=device).to(scale.dtype)
            first, second = (statistics.median(_times(way, states, weight, device)) for way in ways.values())
            rate = 2 * batch * rows * columns / first / 1e12
            note = f"{first * 1e6:.0f} over {second * 1e6:.0f} us; {rate:.1f} TFLOP/s"
            yield Figure(f"Triton's product over cuBLASLt, {shape}, {batch} rows", first / second, "×", note=note)


def _times(
    product: Callable[..., torch.Tensor], states: torch.Tensor, weight: torch.Tensor, device: str
) -> list[float]:
    for _ in range(3):
        product(states, weight)
    if not device.startswith("cuda"):
        began = time.perf_counter()
        product(states, weight)
        return [time.perf_counter() - began]
    found = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        product(states, weight)
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return found
