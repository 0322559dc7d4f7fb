"""What fixed shapes cost the torch engine: one text prefilled and decoded with and without, in turns in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.figures import Figure
from troth.node.engine.exact_layers import ROWS, ExactSlice
from troth.node.engine.interface import SessionKey
from troth.node.engine.layers import LayerSlice
from troth.node.engine.probe import probe, probe_text
from troth.node.engine.torch_engine import TorchEngine
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

ROUNDS, PROMPT, STEPS = 7, 256, 24
DTYPES = ("float32", "bfloat16")
BEFORE, REACH = (2.23, 1.16), (1.5, 1.1)
"""Of decoding, by dtype: in whole blocks, and what we set out to reach."""
KEY = SessionKey(bytes(32), 0, 0)


def measure(folder: ModelFolder) -> list[Figure]:
    """Medians over the rounds of ratios within a round, one thread."""
    return [figure for dtype in (0, 1) for figure in asyncio.run(_measure(folder, dtype))]


async def _measure(folder: ModelFolder, dtype: int) -> list[Figure]:
    whole = Segment(0, int(folder.config["num_hidden_layers"]))
    plain, exact = (TorchEngine(folder, whole, dtype, threads=1, layers=slices) for slices in (LayerSlice, ExactSlice))
    prefills, decodes = [], []
    try:
        for number in range(ROUNDS + 1):
            order = (plain, exact) if number % 2 else (exact, plain)
            seconds = {engine: await _seconds(engine) for engine in order}
            if number:  # the first round warms up
                prefills.append(seconds[exact][0] / seconds[plain][0])
                decodes.append(seconds[exact][1] / seconds[plain][1])
        equal = [await _reproducible(engine) for engine in (plain, exact)]
    finally:
        await plain.close()
        await exact.close()
    name, note = DTYPES[dtype], f"{ROWS} rows; {PROMPT} and {STEPS} tokens; median of {ROUNDS} pairs"
    decode = f"exact classes on torch, decode over plain torch, {name}"
    return [
        Figure(decode, statistics.median(decodes), "×", BEFORE[dtype], REACH[dtype], note),
        Figure(f"the same, prefill, {name}", statistics.median(prefills), "×", note=note),
        Figure(f"decode has the bits of prefill, {name}", equal[1], "1 or 0", reach=1, note=f"without: {equal[0]:.0f}"),
    ]


async def _seconds(engine: TorchEngine) -> tuple[float, float]:
    text = probe_text(engine.vocabulary)[: PROMPT + STEPS]
    prefill = await _timed(lambda: engine.forward(KEY, engine.slice, 0, text[:PROMPT]))

    async def decode() -> None:
        for position in range(PROMPT, PROMPT + STEPS):
            await engine.forward(KEY, engine.slice, position, text[position : position + 1])

    seconds = await _timed(decode)
    await engine.forget(KEY)
    return prefill, seconds


async def _timed(action: Callable[[], Awaitable[object]]) -> float:
    before = time.process_time()
    await action()
    return time.process_time() - before


async def _reproducible(engine: TorchEngine) -> float:
    try:
        await probe(engine)
    except ModelError:
        return 0.0
    return 1.0
