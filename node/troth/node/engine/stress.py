"""A longer probe: whether rows of an exact class depend on what else a machine computes, where kernels change.

The probe of a class (`probe`) takes one text of 312 positions beside two others. Kernels of graphics cards change at
other places as well: between batches of few and of many sequences, at pages of the cache, at tiles of 16 and 256 rows,
and in long contexts. A machine that passes the one and fails at another would be convicted for honest work. So before a
node joins an exact class on a graphics card, its texts are written here in crowds and alone, and every row is compared
with that of a fresh prefill of the same text.

What is tried is sized to the machine (`plan_for`): by the longest text and the cache that it has, and by how long it
may take at the speed that it is seen to have. The report says what was tried, and what was left out for which reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import WholeEngine
from troth.node.errors import ModelError
from troth.protocol.request import Request
from troth.protocol.types import ZERO_HASH, Hash32

WRITTEN = 24
"""Tokens of each text of a crowd."""
PROMPTS = (1, 8, 9, 10, 11, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Lengths of prompts, around the tiles and pages that kernels have."""
CROWDS = (2, 8, 9, 10, 15, 16, 17, 32, 64, 128, 255, 256, 257, 320)
"""Sequences in a batch that one and the same text is written in: steps of so many rows."""
CONTEXTS = (2_048, 8_192, 20_000)
"""Positions of a long prompt; kernels that split keys split these."""
BESIDE = 16
"""Short texts that are written beside a long one."""
SECONDS = 600.0
CHOSEN = 900_000
"""Temperature in millionths: texts differ, so that crowds do not share their prefixes."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StressPlan:
    """What is tried: prompts of a crowd, sizes of crowds of one text, and long contexts."""

    prompts: tuple[int, ...]
    crowds: tuple[int, ...]
    contexts: tuple[int, ...]

    @property
    def positions(self) -> int:
        """Positions that are computed, each once to write it and once in a prefill."""
        short = sum(self.prompts) + WRITTEN * len(self.prompts)
        same = sum((PROMPTS[2] + WRITTEN) * size for size in self.crowds)
        long = sum(context + (BESIDE + 1) * WRITTEN for context in self.contexts)
        return 2 * (short + long) + same

    @property
    def whole(self) -> bool:
        """Whether it is all that a graphics card has to pass."""
        return self == FULL


FULL = StressPlan(tuple(PROMPTS[number % len(PROMPTS)] for number in range(264)), CROWDS, CONTEXTS)


@dataclass(frozen=True, slots=True)
class StressReport:
    """``compared`` rows were equal; ``left_out`` says what of the full plan was not tried, and why."""

    plan: StressPlan
    compared: int
    seconds: float
    left_out: str

    @property
    def whole(self) -> bool:
        """Whether nothing was left out."""
        return self.plan.whole

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"whole": self.whole}


def plan_for(positions: int, cache: int, rate: float, seconds: float = SECONDS) -> StressPlan:
    """The largest plan for texts up to `positions`, a cache of so many, and `rate` computed positions a second.

    Long contexts go first where time is short, then the largest crowds: what is left has the boundaries of tiles.
    """
    room = min(positions, cache)
    contexts = [context for context in CONTEXTS if context + WRITTEN <= room]
    crowds = [size for size in CROWDS if size * (PROMPTS[2] + WRITTEN) <= cache]
    prompts = [length for length in FULL.prompts if length + WRITTEN <= room]
    while True:
        plan = StressPlan(tuple(prompts), tuple(crowds), tuple(contexts))
        if plan.positions <= rate * seconds:
            return plan
        if contexts:
            contexts.pop()
        elif len(crowds) > 3:
            crowds.pop()
        elif len(prompts) > len(PROMPTS):
            del prompts[max(len(PROMPTS), len(prompts) // 2) :]
        else:
            return plan


async def stress(engine: WholeEngine, positions: int, *, seconds: float = SECONDS, tell: Tell) -> StressReport:
    """Try an engine; takes about `seconds`, and longer on machines that the least plan is too much for.

    Raises:
        ModelError: a row depends on what was computed beside it; the message says of which text and position.
    """
    began = time.perf_counter()
    rate = await _rate(engine, min(256, positions))
    load = engine.load
    plan = plan_for(positions, load.blocks * load.block or positions, rate, seconds)
    missing = _left_out(plan, positions, load.blocks * load.block or positions, rate, seconds)
    tell(
        f"{rate:,.0f} positions a second; {plan.positions:,} are tried" + (f"; left out: {missing}" if missing else "")
    )
    compared = await _crowd(engine, plan.prompts, tell)
    compared += await _same_text(engine, plan.crowds, tell)
    for context in plan.contexts:
        compared += await _long(engine, context, tell)
    return StressReport(plan, compared, time.perf_counter() - began, missing)


def _left_out(plan: StressPlan, positions: int, cache: int, rate: float, seconds: float) -> str:
    told = []
    if gone := [size for size in FULL.contexts if size not in plan.contexts]:
        told.append("contexts of " + ", ".join(f"{size:,}" for size in gone))
    if gone := [size for size in FULL.crowds if size not in plan.crowds]:
        told.append("batches of " + ", ".join(map(str, gone)))
    if len(plan.prompts) < len(FULL.prompts):
        told.append(f"{len(FULL.prompts) - len(plan.prompts)} of {len(FULL.prompts)} prompts")
    if not told:
        return ""
    reason = f"texts have {positions:,} positions, the cache {cache:,}, and {rate * seconds:,.0f} are computed in time"
    return f"{'; '.join(told)} ({reason})"


async def _rate(engine: WholeEngine, length: int) -> float:
    """Positions a second, by a text that is written and read in a prefill."""
    begun = time.perf_counter()
    compared = await _compared(engine, [_text(engine, 1_000, max(1, length - WRITTEN))])
    return 2 * compared / (time.perf_counter() - begun)


async def _crowd(engine: WholeEngine, lengths: Sequence[int], tell: Tell) -> int:
    """Texts of all lengths at once: prompts are read beside texts that are written."""
    tell(f"{len(lengths)} texts at once, prompts of {min(lengths)} to {max(lengths)}")
    return await _compared(engine, [_text(engine, number, length) for number, length in enumerate(lengths)])


async def _same_text(engine: WholeEngine, sizes: Sequence[int], tell: Tell) -> int:
    """One text in batches of many sizes, beside others of its length, so that steps have just so many rows."""
    compared, first = 0, None
    for size in sizes:
        tell(f"a batch of {size}")
        others = [_text(engine, 10_000 + number, PROMPTS[2]) for number in range(size)]
        written = await asyncio.gather(*(_written(engine, prompt, number, 0.0) for number, prompt in enumerate(others)))
        rows = written[0][1]
        if first is None:
            first = await _fresh(engine, written[0][0])
        _require_equal(rows, first, f"a text in a batch of {size}")
        compared += len(rows)
    return compared


async def _long(engine: WholeEngine, context: int, tell: Tell) -> int:
    """A long text that is written beside short ones."""
    tell(f"a context of {context:,}")
    prompts = [_text(engine, 20_000, context), *(_text(engine, 20_001 + number, 64) for number in range(BESIDE))]
    return await _compared(engine, prompts)


async def _compared(engine: WholeEngine, prompts: Sequence[list[int]]) -> int:
    """Write all texts at once, then compute each in a prefill, some at a time; how many rows were equal."""
    written = await asyncio.gather(*(_written(engine, prompt, number) for number, prompt in enumerate(prompts)))
    compared = 0
    for first in range(0, len(written), BESIDE):
        part = written[first : first + BESIDE]
        prefilled = await asyncio.gather(*(_fresh(engine, text) for text, _ in part))
        for (text, rows), expected in zip(part, prefilled, strict=True):
            _require_equal(rows, expected, f"a text of {len(text)} positions among {len(prompts)}")
            compared += len(rows)
    return compared


async def _written(
    engine: WholeEngine, prompt: list[int], number: int, pause: float = 0.001
) -> tuple[list[int], NDArray[Any]]:
    """A text without its last token, and the rows that were computed as it was written.

    ``pause``: seconds between two texts' beginnings, so that prompts are read in steps in which others write.
    """
    await asyncio.sleep(pause * (number % 97))
    request = Request(ZERO_HASH, tuple(prompt), WRITTEN, CHOSEN, 1_000_000, ())
    rows, text = [], list(prompt)
    async with aclosing(engine.generate(request, Hash32(number.to_bytes(32, "big")))) as steps:
        async for step in steps:
            rows.append(step.rows)
            text.append(step.token)
    return text[:-1], np.concatenate(rows)


async def _fresh(engine: WholeEngine, text: Sequence[int]) -> NDArray[Any]:
    return (await engine.prefill(text, fresh=True)).rows


def _text(engine: WholeEngine, number: int, length: int) -> list[int]:
    drawn = np.random.Generator(np.random.Philox(key=np.array([number, 3], np.uint64)))
    return [int(token) for token in drawn.integers(0, engine.vocabulary, size=length)]


def _require_equal(rows: NDArray[Any], expected: NDArray[Any], where: str) -> None:
    if np.array_equal(rows, expected):
        return
    wrong = int(np.argmax((rows != expected).any(axis=1))) if rows.shape == expected.shape else min(len(rows), 1)
    what = f"rows depend on what is computed beside them: {where} differs from its prefill, first at position"
    raise ModelError(what, wrong, "Serve a tolerant class: an exact one would convict this machine.")
