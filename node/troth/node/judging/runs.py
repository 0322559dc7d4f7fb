"""A verifier's further runs of a segment, besides the one that it committed to.

Where a class says so (`troth.protocol.doubts`), a verifier that doubts runs the same positions once more, otherwise
than the first time, and judges by both runs: no prompt makes an honest node a cheat.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine, OtherwiseEngine, SessionKey, ShakingEngine
from troth.node.judging.sessions import JudgedSession
from troth.protocol.doubts import SEVENTH_RULES, SIXTH_RULES, rules_version
from troth.protocol.market.types import ExecutionClass
from troth.protocol.tensors import Dtype, widen
from troth.protocol.unsteady import Distances, ShakenRuns, distances

SECOND_RUN = b"troth/second run/"
"""Names the caches of these runs as no order is named."""
PIECE, PIECES = 7, 8
"""Positions of a piece that a second run cuts a prompt in, and how many; the rest of the prompt is one more. So few
rows are multiplied by another routine than many, and what comes after them sees their keys and values."""
FIFTH_RULES = 5
"""From these on a text is judged by its node's own rows, too, and float32 rows by runs with other last bits."""
SHAKEN = 2
"""Such runs. One in a hundred would miss a row that rounding moves in one direction alone."""
LIGHTLY, STRONGLY = 8, 24
"""Such runs at a third look in bfloat16, by strength. The light ones have a spread to tell; a row that tips in one of
seven strong ones tips in 97 % of twenty-four. Every other one changes all rows alike, as kernels do."""


def looks_twice(rules: ExecutionClass) -> bool:
    """Whether a class has a second look: exact ones have no noise, older ones keep their rules."""
    return not rules.exact and rules_version(rules.calibration) >= 2


async def second_run(engine: Engine, session: JudgedSession) -> NDArray[Any]:
    """The same positions computed otherwise: the prompt in pieces, then one by one, as who decodes does.

    A prompt at once would have the very bits of the first run, and tell nothing of what rounding can do to it.
    """
    inputs, start = session.all_inputs(), 0
    key, found = SessionKey(SECOND_RUN + os.urandom(16), 0, 0), []
    try:
        for end in _second_ends(len(inputs), session.seat.prompt_positions):
            found.append((await engine.forward(key, session.seat.layers, start, inputs[start:end])).rows)
            start = end
    finally:
        await engine.forget(key)
    return np.concatenate(found)


async def shaken_runs(engine: Engine, session: JudgedSession) -> list[NDArray[Any]]:
    """The same positions in a float32 class, from rows whose last bits are changed; none by older rules.

    A prompt can be searched for in whose rows two orders of a sum happen to agree and a third does not, by a hundred
    times as much. What is changed here nobody knows beforehand.
    """
    rules = session.seat.execution_class
    precise = session.seat.dtype is Dtype.FLOAT32 and rules_version(rules.calibration) >= FIFTH_RULES
    if not precise or not isinstance(engine, ShakingEngine):
        return []
    runs = [await engine.shaken(session.seat.layers, session.all_inputs()) for _ in range(SHAKEN)]
    return [rows for rows in runs if rows is not None]


@dataclass(frozen=True, slots=True)
class ThirdLook:
    """Runs of a bfloat16 class with changed last bits: how far they are from float32, and their rows of the text."""

    states: ShakenRuns
    lightly: tuple[NDArray[Any], ...]
    strongly: tuple[NDArray[Any], ...]


class _Shaken(NamedTuple):
    """How far one run is from float32, and its rows of the text."""

    apart: Distances
    text: NDArray[Any]


async def third_look(engine: Engine, session: JudgedSession, reference: NDArray[np.float32] | None) -> ThirdLook | None:
    """The same positions in a bfloat16 class, from rows whose last bits are changed; None by older rules, and where the
    engine cannot.

    Where a prompt brings a row to where rounding tips it, all other runs may fall alike, and an engine whose kernels
    round in other places falls otherwise.
    """
    rules = session.seat.execution_class
    noisy = _is_noisy(session) and rules_version(rules.calibration) >= SEVENTH_RULES
    if not noisy or reference is None or not isinstance(engine, ShakingEngine):
        return None
    light, strong = list[_Shaken](), list[_Shaken]()
    for made, strongly, count in ((light, False, LIGHTLY), (strong, True, STRONGLY)):
        for alike in in_turn(count):
            run = await _shaken(engine, session, reference, strongly=strongly, alike=alike)
            if run is None:
                return None
            made.append(run)
    apart = ShakenRuns([one for one, _ in light], [one for one, _ in strong])
    return ThirdLook(apart, tuple(text for _, text in light), tuple(text for _, text in strong))


def in_turn(count: int) -> Iterator[bool]:
    """Which of so many shaken runs change all rows alike."""
    return (number % 2 == 1 for number in range(count))


async def _shaken(
    engine: ShakingEngine,
    session: JudgedSession,
    reference: NDArray[np.float32],
    *,
    strongly: bool,
    alike: bool,
) -> _Shaken | None:
    """One run. Of a long prompt all runs would be gigabytes, so only the text's rows are kept."""
    rows = await engine.shaken(session.seat.layers, session.all_inputs(), strongly=strongly, alike=alike)
    if rows is None:
        return None
    apart = await asyncio.to_thread(lambda: distances(widen(rows, Dtype.BFLOAT16), reference))
    written = len(session.tokens) if session.seat.is_last else 0
    return _Shaken(apart, rows[len(rows) - written :].copy())


def _is_noisy(session: JudgedSession) -> bool:
    return session.seat.dtype is Dtype.BFLOAT16 and not session.seat.execution_class.exact


async def other_attention(engine: Engine, session: JudgedSession) -> NDArray[Any] | None:
    """The same positions in a bfloat16 class with attention computed otherwise; None by older rules, and where the
    engine knows one way."""
    rules = session.seat.execution_class
    noisy = _is_noisy(session) and rules_version(rules.calibration) >= SIXTH_RULES
    if not noisy or not isinstance(engine, OtherwiseEngine):
        return None
    return await engine.otherwise(session.seat.layers, session.all_inputs())


def _second_ends(positions: int, prompt: int) -> list[int]:
    """Where the pieces of a second run end."""
    # A result may count a prompt of nothing, and who is not shown the request cannot know better.
    prompt = min(max(prompt, 1), positions)
    return [*range(PIECE, min(prompt, PIECE * (PIECES + 1)), PIECE), *range(prompt, positions + 1)]


async def reference_rows(engine: Engine, session: JudgedSession) -> NDArray[Any] | None:
    """The rows in float32, where the class tolerates the noise of less; None elsewhere.

    They judge texts too: two honest bfloat16 runs may disagree by a logit where the nucleus ends, and none of the two
    is the measure of the other.
    """
    if not _is_noisy(session):
        return None
    return await engine.reference(session.seat.layers, session.all_inputs())
