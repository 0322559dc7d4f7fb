"""The torch engine at the shape of an 8B model with random weights: bits in two processes, speed, and a check's cost.

The weights are made on the machine, so that none have to travel, and the same in both processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.tiny_decoders import write_tiny_decoder

from benchmarks.figures import Figure
from benchmarks.gpu import Deadline
from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import SessionKey, TokenDraw
from troth.node.engine.layers import LayerSlice
from troth.node.engine.probe import POSITIONS, probe
from troth.node.engine.torch_engine import TorchEngine
from troth.node.errors import NodeError
from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32, Segment

SHAPE: dict[str, Any] = {
    "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192,
    "tie_word_embeddings": False, "initializer_range": 0.02,
}  # fmt: skip
"""Llama 3 8B: 16 GB in bfloat16, written into memory or onto the disk for as long as this runs."""
TINY: dict[str, Any] = {"num_hidden_layers": 2, "max_position_embeddings": 2 * POSITIONS}
PROMPT, WRITTEN, TOGETHER = 512, 128, 8
BFLOAT16 = 1


def measure(device: str, deadline: Deadline, *, tiny: bool) -> list[Figure]:
    """Figures of a tolerant and an exact class."""
    sizes = TINY if tiny else SHAPE
    prompt, written = (24, 4) if tiny else (PROMPT, WRITTEN)
    with tempfile.TemporaryDirectory(prefix="troth-gpu-") as scratch:
        print("  making the weights", file=sys.stderr, flush=True)
        path = Path(scratch) / "random"
        with torch.device(device):  # a CPU would take minutes for 8B
            folder = write_tiny_decoder("llama", path, torch.bfloat16, **sizes)
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        figures = _two_processes(path, device, deadline)
        for name, slices in (("tolerant", LayerSlice), ("exact", ExactSlice)):
            if deadline.allows(f"the {name} class"):
                engine = TorchEngine(
                    folder, Segment(0, folder.layers), BFLOAT16, device=device, cache_bytes=8 << 30, layers=slices
                )
                figures += asyncio.run(_speeds(engine, name, (prompt, written), deadline))
    return figures


def _two_processes(path: Path, device: str, deadline: Deadline) -> list[Figure]:
    found = []
    for number in range(2):
        if not deadline.allows(f"probe {number + 1}"):
            return []
        command = [sys.executable, "-m", "benchmarks.gpu.engine", str(path), device]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        found.append(json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()[-300:]})
        print(f"  {found[-1]}", file=sys.stderr, flush=True)
    same = len({json.dumps(one, sort_keys=True) for one in found}) == 1 and "probe" in found[0]
    return [Figure("exact class, probes that two processes agree in", float(same), "of 1", reach=1, note=str(found))]


async def _speeds(engine: TorchEngine, name: str, lengths: tuple[int, int], deadline: Deadline) -> list[Figure]:
    try:
        rates = {}
        for count in (1, TOGETHER):
            if deadline.allows(f"{count} texts, {name}"):
                rates[count] = await _rate(engine, count, lengths)
        figures = [
            Figure(
                f"torch engine, {count} texts at once, {name}",
                rate,
                "tokens/s",
                note=f"{lengths[1]} after {lengths[0]}",
            )
            for count, rate in rates.items()
        ]
        if 1 in rates and deadline.allows(f"a check, {name}"):
            prefill = [await _prefill(engine, sum(lengths)) for _ in range(3)]
            inference = await _prefill(engine, lengths[0]) + lengths[1] / rates[1]
            share = 100 * statistics.median(prefill) / inference
            note = f"one prefill of {sum(lengths)} over prompt {lengths[0]} and text {lengths[1]}, one text"
            figures.append(Figure(f"one verifier over inference, {name}", share, "%", note=note))
        return figures
    finally:
        await engine.close()


async def _rate(engine: TorchEngine, count: int, lengths: tuple[int, int]) -> float:
    prompt, written = lengths
    rows = []
    for number in range(count):
        rows.append((await engine.forward(_key(number), engine.slice, 0, _text(number, prompt, engine))).rows[-1:])
    began = time.perf_counter()
    await asyncio.gather(*(_write(engine, number, row, prompt, written) for number, row in enumerate(rows)))
    seconds = time.perf_counter() - began
    for number in range(count):
        await engine.forget(_key(number))
    return count * written / seconds


async def _write(engine: TorchEngine, number: int, row: Any, prompt: int, written: int) -> None:
    for position in range(prompt, prompt + written):
        draw = TokenDraw(Sampling(0.7, 0.9), Hash32(bytes([number]) * 32), position - 1)
        token = (await engine.choose(_key(number), row, draw)).token
        row = (await engine.forward(_key(number), engine.slice, position, np.array([token]))).rows


async def _prefill(engine: TorchEngine, positions: int) -> float:
    began = time.perf_counter()
    await engine.forward(_key(99), engine.slice, 0, _text(99, positions, engine))
    seconds = time.perf_counter() - began
    await engine.forget(_key(99))
    return seconds


def _text(number: int, length: int, engine: TorchEngine) -> Any:
    return np.random.default_rng(number).integers(0, engine.vocabulary, size=length)


def _key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


def main() -> None:
    """The probe of an exact class, as a process of its own: prints JSON."""
    folder = ModelFolder(Path(sys.argv[1]))
    engine = TorchEngine(folder, Segment(0, folder.layers), BFLOAT16, device=sys.argv[2], layers=ExactSlice)
    try:
        print(json.dumps({"probe": asyncio.run(probe(engine))}))
    except NodeError as error:
        print(json.dumps({"differs": str(error)}))


if __name__ == "__main__":
    main()
