"""Texts that the torch engine writes at once: their tokens a second over those of one, and what it does to rows.

One text and eight are written in turns, each token chosen with public noise as a node does it. Rows of texts that were
written together are compared with those of the same texts written alone: an exact class must have the same bits, and
in a tolerant one they must not be further apart than decode and prefill are, which verifiers always compare.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import SessionKey, TokenDraw
from troth.node.engine.layers import LayerSlice
from troth.node.engine.torch_engine import TorchEngine, from_words
from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32, Segment

ROUNDS, TOGETHER, PROMPT, WRITTEN, THREADS = 5, 8, 64, 16, 2
LONG = 512
KINDS: dict[str, tuple[int, type[LayerSlice]]] = {
    "bfloat16": (1, LayerSlice),
    "bfloat16, exact": (1, ExactSlice),
    "float32": (0, LayerSlice),
    "float32, exact": (0, ExactSlice),
}


def measure(folder: ModelFolder) -> list[Figure]:
    """Figures of each kind of class, on two threads of one engine."""
    found = []
    for name in KINDS:
        found += asyncio.run(_measure(folder, name))
        for figure in found[-3:]:
            print(f"  {figure.name}: {figure.value:.3g} {figure.unit} ({figure.note})", file=sys.stderr, flush=True)
    return found


async def _measure(folder: ModelFolder, name: str) -> list[Figure]:
    dtype, slices = KINDS[name]
    engine = TorchEngine(folder, Segment(0, folder.layers), dtype, threads=THREADS, layers=slices)
    try:
        one, many = [], []
        for number in range(ROUNDS + 1):
            rates = {}
            for count in (1, TOGETHER) if number % 2 else (TOGETHER, 1):
                rates[count] = await _rate(engine, count)
            if number:  # the first round warms up
                one.append(rates[1])
                many.append(rates[TOGETHER])
                print(f"  {name}: {rates[TOGETHER]:.1f} over {rates[1]:.1f} tokens/s", file=sys.stderr, flush=True)
        pause, wait = await _beside_a_long_prompt(engine)
        return [*_rates(name, one, many), *await _rows(engine, name), *_waits(name, pause, wait)]
    finally:
        await engine.close()


def _rates(name: str, one: Sequence[float], many: Sequence[float]) -> Iterator[Figure]:
    ratios = [more / single for more, single in zip(many, one, strict=True)]
    note = f"{statistics.median(many):.1f} over {statistics.median(one):.1f} tokens/s; median of {ROUNDS} pairs, "
    note += f"{min(ratios):.1f} to {max(ratios):.1f}; {THREADS} threads"
    yield Figure(
        f"torch, {TOGETHER} requests at once over 1, {name}", statistics.median(ratios), "×", 0.4, reach=2, note=note
    )


def _waits(name: str, pause: float, wait: float) -> Iterator[Figure]:
    note = f"a prompt of {LONG} positions, read in {wait:.1f} s beside a text"
    yield Figure(f"longest pause of a text while a prompt is read, {name}", pause, "s", note=note)


def _text(number: int, length: int = PROMPT) -> NDArray[np.int64]:
    return np.random.default_rng(number).integers(5, 40_000, size=length)


def _key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


async def _rate(engine: TorchEngine, count: int) -> float:
    """Tokens a second of so many texts whose prompts were read."""
    firsts = [(await engine.forward(_key(number), engine.slice, 0, _text(number))).rows for number in range(count)]
    began = time.perf_counter()
    await asyncio.gather(*(_written(engine, number, first[-1:]) for number, first in enumerate(firsts)))
    seconds = time.perf_counter() - began
    for number in range(count):
        await engine.forget(_key(number))
    return count * WRITTEN / seconds


async def _written(engine: TorchEngine, number: int, row: NDArray[Any]) -> None:
    for position in range(PROMPT, PROMPT + WRITTEN):
        draw = TokenDraw(Sampling(0.7, 0.9), Hash32(bytes([number]) * 32), position)
        token = np.array([(await engine.choose(_key(number), row, draw)).token])
        row = (await engine.forward(_key(number), engine.slice, position, token)).rows


async def _rows(engine: TorchEngine, name: str) -> list[Figure]:
    """How far rows of texts that are written together are from those written alone, and those from their prefill."""
    alone = [await _grown(engine, number) for number in range(TOGETHER)]
    together = await asyncio.gather(*(_grown(engine, number) for number in range(TOGETHER)))
    if "exact" in name:
        same = sum(int((one == other).all(axis=1).sum()) for one, other in zip(alone, together, strict=True))
        what = f"rows written together with other bits than alone, {name}"
        return [Figure(what, WRITTEN * TOGETHER - same, "rows", reach=0, note=f"of {WRITTEN * TOGETHER}")]
    whole = [
        (await engine.forward(_key(0), engine.slice, 0, _text(number, PROMPT + WRITTEN))).rows[PROMPT:]
        for number in range(TOGETHER)
    ]
    found, honest = (_distance(engine, alone, others) for others in (together, whole))
    note = f"weighted RMS, median of rows {found:.2g}; decode against prefill {honest:.2g}"
    return [Figure(f"rows written together against alone, over honest noise, {name}", found / honest, "×", note=note)]


async def _grown(engine: TorchEngine, number: int) -> NDArray[Any]:
    inputs = _text(number, PROMPT + WRITTEN)
    await engine.forward(_key(number), engine.slice, 0, inputs[:PROMPT])
    rows = [
        (await engine.forward(_key(number), engine.slice, position, inputs[position : position + 1])).rows
        for position in range(PROMPT, len(inputs))
    ]
    await engine.forget(_key(number))
    return np.concatenate(rows)


def _distance(engine: TorchEngine, ones: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]) -> float:
    first, second = (from_words(np.concatenate(rows), engine.dtype).double().numpy() for rows in (ones, others))
    each = np.sqrt((((first - second) / second.std(axis=0)) ** 2).mean(axis=1))
    return float(np.median(each))


async def _beside_a_long_prompt(engine: TorchEngine) -> tuple[float, float]:
    """The longest time between two tokens of a text while a prompt is read, and how long that took."""
    row = (await engine.forward(_key(0), engine.slice, 0, _text(0))).rows[-1:]
    reading = asyncio.create_task(engine.forward(_key(1), engine.slice, 0, _text(1, LONG)))
    began = last = time.perf_counter()
    position, longest = PROMPT, 0.0
    while not reading.done():
        token = (await engine.choose(_key(0), row, TokenDraw(Sampling(0.7, 0.9), Hash32(bytes(32)), position))).token
        row = (await engine.forward(_key(0), engine.slice, position, np.array([token]))).rows
        now = time.perf_counter()
        longest, last, position = max(longest, now - last), now, position + 1
    for number in (0, 1):
        await engine.forget(_key(number))
    return longest, last - began
