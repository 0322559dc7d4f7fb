"""Which models are served, how fast their weights are read and their tokens chosen, and what texts at once gain.

Families are tried as tiny random models, saved and loaded as real ones. The root is compared with two threads that do
nothing but hash blocks of a row's size, in turns with it. Choices are compared with the protocol's own rule.

Texts are written with the real SmolLM2-135M, which `make demo` puts into `.troth`.

Families on vLLM for CPU (`--vllm`) are tried where vLLM is installed: each computes the probe of its exact class.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.tiny_decoders import FAMILIES, LAYERS, UNSLICED, tried, write_tiny_decoder
from support.token_choice import compared, draws_for, rows_of

from benchmarks import batches, prefills
from benchmarks.exact import torch_shapes
from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.engine.choice import by_the_rule, certain_tokens, choose_tokens
from troth.node.engine.interface import TokenDraw
from troth.node.engine.probe import PROBED, probe
from troth.node.errors import EngineError, ModelError
from troth.node.models.folder import ModelFolder, find_model
from troth.node.models.roots.weights_root import weights_root
from troth.node.models.tensor_files import raw_tensors
from troth.protocol.hashing import keccak256
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

PARTS = ("--families", "--vllm", "--root", "--choice", "--batches", "--prefills", "--exact")
ROW_BYTES, ROWS, ROUNDS = 8_192, 262_144, 5
"""A row of 4,096 bfloat16 numbers; 2.1 GB of them, as a model of a billion weights has."""
TENSORS, CORES = 64, 2
COMPARED = ((512, 0.6), (4_096, 0.3), (32_000, 0.09), (152_064, 0.01))
"""Vocabularies, and their share of the comparisons."""
KINDS = ("text", "wide", "flat", "bfloat16", "equal", "one", "cut")
BATCH, VOCABULARY = 256, 152_064
VLLM_FAMILIES = (
    "llama",
    "qwen3",
    "mistral",
    "phi3",
    "gemma3_text",
    "qwen3_moe",
    "gpt_oss",
    "qwen2",
    "olmo2",
    "granite",
)
VLLM_SIZES: dict[str, Any] = {
    # Kernels of vLLM for CPU know some sizes of heads only, and a text of the probe has to fit.
    "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "max_position_embeddings": 2048, "num_hidden_layers": 2,
}  # fmt: skip
VLLM_LAYERS: dict[str, dict[str, Any]] = {
    "qwen2": {"layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 64},
    "gpt_oss": {"layer_types": ["sliding_attention", "full_attention"]},
}


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All parts, or those that options name."""
    parser = argparse.ArgumentParser(prog="scripts/bench models", description=__doc__)
    for part in PARTS:
        parser.add_argument(part, action="append_const", const=part, dest="parts", help="only this part, or these")
    parser.add_argument("--comparisons", type=int, default=100_000, help="choices that are compared")
    chosen = parser.parse_args(options)
    count = chosen.comparisons
    parts: dict[str, Callable[[], list[Figure]]] = {
        "--families": families,
        "--vllm": vllm_families,
        "--root": root,
        "--choice": lambda: [*choices(count), *choice_time()],
        "--batches": lambda: batches.measure(find_model(Path(".troth"), "smollm2-135m")),
        "--prefills": lambda: prefills.measure(weights()),
        "--exact": lambda: torch_shapes.measure(weights()),
    }
    return [figure for part in chosen.parts or PARTS for figure in parts[part]()]


def families() -> list[Figure]:
    """Each family with all cuts in both dtypes; one row a family that does not pass, and one for all."""
    torch.set_num_threads(1)
    passed, exact, told = 0, 0, []
    for family in FAMILIES:
        print(f"  {family}", end="", flush=True)
        sliced, reproducible, note = _tried(family)
        print(f": {note or 'slices bit for bit'}", flush=True)
        passed, exact = passed + sliced, exact + reproducible
        told += [f"{family}: {note}"] if note else []
    return [
        Figure("families that slice bit for bit", passed, f"of {len(FAMILIES)}", reach=29, note="; ".join(told)),
        Figure("families whose decode has the bits of prefill in an exact class", exact, f"of {len(FAMILIES)}"),
    ]


def _tried(family: str) -> tuple[bool, bool, str]:
    with tempfile.TemporaryDirectory(prefix="troth-families-") as scratch:
        try:
            folder = write_tiny_decoder(family, Path(scratch) / "tiny")
            trials = [asyncio.run(tried(folder, dtype, range(1, LAYERS))) for dtype in (0, 1)]
        except ModelError as error:
            return False, False, f"refused ({error.value})" if family in UNSLICED else str(error)
    sliced = all(trial.transformers and trial.head and trial.slices for trial in trials)
    exact = all(trial.exact for trial in trials)
    return sliced, exact, "" if sliced and exact else str(trials)


def vllm_families() -> list[Figure]:
    """Families whose decode has the bits of their prefill in vLLM for CPU, beside two other texts, in bfloat16."""
    if importlib.util.find_spec("vllm") is None:
        print("  vLLM is not installed here: troth node engine install vllm", file=sys.stderr)
        return []
    passed, told = 0, []
    for family in VLLM_FAMILIES:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="troth-families-") as scratch:
            try:
                sizes = VLLM_SIZES | VLLM_LAYERS.get(family, {})
                folder = write_tiny_decoder(family, Path(scratch) / "tiny", torch.bfloat16, **sizes)
                said = asyncio.run(_vllm_probe(folder))
                passed += 1
            except (EngineError, ModelError, ValueError) as error:
                said = str(error).splitlines()[0]
                told.append(f"{family}: {said}")
        print(f"  {family}: {said} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
    names = ", ".join(VLLM_FAMILIES)
    note = "; ".join(told) or f"bfloat16: {names}"
    return [Figure("families on vLLM for CPU that pass the probe", passed, f"of {len(VLLM_FAMILIES)}", 2, 7, note)]


async def _vllm_probe(folder: ModelFolder) -> str:
    from troth.node.engine.vllm.engine import VllmEngine
    from troth.node.engine.vllm.settings import EngineSettings

    settings = EngineSettings(folder.path, 1, positions=PROBED, cache_bytes=1 << 27, threads=1)
    engine = VllmEngine(folder, settings)
    try:
        return await probe(engine)
    finally:
        await engine.close()


def root() -> list[Figure]:
    """The weights root of a file of rows, over two threads of bare keccak."""
    with tempfile.TemporaryDirectory(prefix="troth-root-") as scratch:
        folder = Path(scratch)
        _write_rows(folder / "model.safetensors")
        tensors, ratios, processors, rates = raw_tensors(folder), [], [], []
        for number in range(ROUNDS + 1):
            jobs: list[Callable[[], object]] = [_bare, lambda: weights_root(tensors, None, programs=CORES)]
            spent = {job: _both_clocks(job) for job in (jobs if number % 2 else jobs[::-1])}
            if number:  # the first round warms up
                (bare, bare_processor), (ours, our_processor) = (spent[job] for job in jobs)
                ratios.append(bare / ours)
                processors.append(bare_processor / our_processor)
                rates.append(ROW_BYTES * ROWS / ours / 1e6)
    note = f"rows of {ROW_BYTES:,} bytes, {CORES} programs, median of {ROUNDS} pairs; by processor time "
    note += f"{100 * statistics.median(processors):.0f} %"
    return [
        Figure("weights root over bare keccak", 100 * statistics.median(ratios), "%", reach=90, note=note),
        Figure("weights root", statistics.median(rates), "MB/s", note="on a busy machine less"),
    ]


def _both_clocks(job: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of processors with those of programs that the job ran."""
    before, began = os.times(), time.perf_counter()
    job()
    wall, after = time.perf_counter() - began, os.times()
    return wall, sum(after[:4]) - sum(before[:4])


def _write_rows(path: Path) -> None:
    size = ROWS // TENSORS * ROW_BYTES
    told = {
        f"w{number}": {
            "dtype": "BF16",
            "shape": [ROWS // TENSORS, ROW_BYTES // 2],
            "data_offsets": [number * size, (number + 1) * size],
        }
        for number in range(TENSORS)
    }
    header = json.dumps(told).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(TENSORS):
            file.write(os.urandom(size))


def _bare() -> None:
    block = os.urandom(ROW_BYTES)

    def hash_all() -> None:
        for _ in range(ROWS // CORES):
            keccak256(block)

    threads = [threading.Thread(target=hash_all) for _ in range(CORES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _seconds(job: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    job()
    return clock() - began


def choices(count: int) -> list[Figure]:
    """Tokens that differ from the rule's, over all kinds of logits and samplings."""
    torch.set_num_threads(1)
    generator, wrong, done = np.random.default_rng(12), 0, 0
    for vocabulary, share in COMPARED:
        left, number = round(count * share), 0
        while left:
            rows = min(left, max(1, 4_000_000 // vocabulary))
            kind = KINDS[number % len(KINDS)]
            wrong += compared(rows_of(kind, rows, vocabulary, generator), draws_for(rows, generator))
            left, number, done = left - rows, number + 1, done + rows
    note = f"{done:,} comparisons; vocabularies of {', '.join(f'{size:,}' for size, _ in COMPARED)}"
    return [Figure("tokens that differ from the protocol's rule", wrong, "tokens", reach=0, note=note)]


def choice_time() -> list[Figure]:
    """A step of a full batch, top_p 0.9 at temperature 0.7, in processor time of one thread: the machine is shared."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(13)
    logits = torch.from_numpy(np.tile(rows_of("text", BATCH // 8, VOCABULARY, generator), (8, 1)))
    draws = [TokenDraw(Sampling(0.7, 0.9), Hash32(generator.bytes(32)), position) for position in range(BATCH)]
    uncertain = sum(token is None for token in certain_tokens(logits, draws))
    spent = min(_seconds(lambda: choose_tokens(logits, draws), time.process_time) for _ in range(7)) * 1e3
    read = min(_seconds(lambda: logits.amax(dim=1), time.process_time) for _ in range(7)) * 1e3
    rule = _seconds(lambda: [by_the_rule(*pair) for pair in zip(logits, draws, strict=True)], time.process_time) * 1e3
    note = f"{uncertain} rows asked of the rule, which takes {rule:,.0f} ms for all; {read:.0f} ms only to read them"
    return [Figure(f"choice for {BATCH} rows of {VOCABULARY:,}", spent, "ms of a core", reach=40, note=note)]
