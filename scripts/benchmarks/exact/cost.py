"""What rows and fixed shapes cost: the same texts with and without each, in turns on one engine.

Prints the figures as JSON. Processor seconds are those of this process and of vLLM's.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

import msgspec
import numpy as np
import psutil

from troth.node.engine.vllm.cache_events import Audience
from troth.node.engine.vllm.core import Core
from troth.node.engine.vllm.sessions import GrowingText
from troth.node.engine.vllm.settings import FIXED_ROWS, EngineSettings

ROUNDS, TEXTS, PROMPT, OUTPUT = 7, 8, 128, 48


async def measure(folder: Path, dtype: int) -> list[dict[str, object]]:
    """Medians over the rounds of ratios within a round."""
    core = await Core.start(EngineSettings(folder, dtype, positions=1000, cache_bytes=1 << 29, threads=1), Audience())
    try:
        await _write(core, 0)
        share = [await _share(core, number + 300) for number in range(ROUNDS)]
        rows = [await _ratio(core, "troth_send", True, False, number) for number in range(1, ROUNDS + 1)]
        shapes = [await _ratio(core, "troth_fix_rows", FIXED_ROWS, 0, number + 100) for number in range(1, ROUNDS + 1)]
        steps = [await _driven(core, number + 200) for number in range(ROUNDS)]
    finally:
        await core.close()
    share, extra = [100 * value for value in share], [100 * (value - 1) for value in rows]
    note = f"{TEXTS} texts at once, {PROMPT} and {OUTPUT} tokens"
    return [
        {"name": "rows, share of processor time", "value": statistics.median(share), "unit": "%",
         "paper": None, "reach": 3.0, "note": f"spent on them in both processes, over all the rest; {_spread(share)}"},
        {"name": "rows, extra processor time", "value": statistics.median(extra), "unit": "%",
         "paper": None, "reach": 3.0, "note": f"{note}; {_spread(extra)}"},
        {"name": "fixed shapes, processor time", "value": statistics.median(shapes), "unit": "×", "paper": None,
         "reach": None, "note": f"{note}; {_spread(shapes)}"},
        {"name": "steps driven from outside, processor time", "value": statistics.median(steps), "unit": "×",
         "paper": None, "reach": None, "note": f"one text, against the engine writing it by itself; {_spread(steps)}"},
    ]  # fmt: skip


def _spread(ratios: list[float]) -> str:
    """A median says little without it on a machine that does other work too."""
    return f"median of {len(ratios)}, {min(ratios):.3g} to {max(ratios):.3g}"


async def _ratio(core: Core, method: str, on: object, off: object, number: int) -> float:
    """Which of the two comes first changes from round to round: a machine that slows down is no cost."""
    seconds = {}
    for value in (on, off) if number % 2 else (off, on):
        await core.call(method, value)
        seconds[value] = await _write(core, number)
    await core.call(method, on)
    return seconds[on] / seconds[off]


async def _share(core: Core, number: int) -> float:
    """Processor seconds spent on rows, over all other seconds of the round: no other run is needed to compare with."""
    rows = await core.row_seconds()
    total = await _write(core, number)
    spent = await core.row_seconds() - rows
    return spent / (total - spent)


async def _driven(core: Core, number: int) -> float:
    """A session that is given each token, over a text that the engine writes."""
    await core.empty_cache()
    prompt = np.random.default_rng(number).integers(100, 40_000, PROMPT).tolist()
    before = _seconds()
    await _text(core, prompt)
    written = _seconds() - before
    await core.empty_cache()
    before, text = _seconds(), GrowingText(core)
    text.append(prompt)
    for position in range(PROMPT, PROMPT + OUTPUT - 1):
        await core.board.rows(text.name, position - 1, position)
        text.append([position])
    await core.board.rows(text.name, text.length - 1, text.length)
    await text.close()
    return (_seconds() - before) / written


async def _write(core: Core, number: int) -> float:
    """Processor seconds of writing the round's texts."""
    await core.empty_cache()
    prompts = np.random.default_rng(number).integers(100, 40_000, (TEXTS, PROMPT)).tolist()
    before = _seconds()
    await asyncio.gather(*(_text(core, prompt) for prompt in prompts))
    return _seconds() - before


async def _text(core: Core, prompt: list[int]) -> None:
    name = core.name()
    core.board.expect(name)
    async for _ in core.run(name, prompt, {"max_tokens": OUTPUT}):
        pass
    core.board.drop(name)


def _seconds() -> float:
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))


if __name__ == "__main__":
    found = asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2])))
    sys.stdout.buffer.write(msgspec.json.encode(found))
