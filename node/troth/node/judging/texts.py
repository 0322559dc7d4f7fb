"""How a text is judged by rows of the last segment: block by block, at the first look and at the second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine, says_choices
from troth.node.judging.runs import ThirdLook
from troth.node.judging.sessions import JudgedSession
from troth.protocol.doubts import first_look, judge_doubted_tokens, reach, rows_apart, rules_version
from troth.protocol.foresight import Foresight
from troth.protocol.margins import losses, margins
from troth.protocol.masks import RowRule, TextRules, text_rules
from troth.protocol.request import Request
from troth.protocol.tokens import MARGIN_CLIP, Sampling, TokenReport, choices, judge_tokens
from troth.protocol.unsteady import BY_HALF

LOGIT_ROWS = 32
"""Rows whose logits are held at a time: 32 rows of a large vocabulary are tens of megabytes, a whole text is not."""
Ruled = Sequence[RowRule] | None
"""What transforms each row of a block; None: nothing."""
LogitsOf = Callable[..., Awaitable[NDArray[Any]]]


async def judge_text(
    engine: Engine,
    session: JudgedSession,
    rows: NDArray[Any],
    text: tuple[int, ...],
    beside: NDArray[Any] | None = None,
) -> TokenReport:
    """Judge every token of a text from rows of the last segment: this node's own, or the reference; then its own are
    ``beside``."""
    found = await _text_margins(engine, session, rows, text, beside)
    return judge_tokens(found, text, session.seat.request, session.seat.execution_class.margin_cut / 1_000_000)


async def _text_margins(
    engine: Engine, session: JudgedSession, rows: NDArray[Any], text: tuple[int, ...], beside: NDArray[Any] | None
) -> NDArray[np.float64]:
    """What every token loses at the first look."""
    found: list[NDArray[np.float64]] = []
    async for position, tokens, logits, ruled in blocks(engine, session, text):
        if beside is None and ruled is None and await _chose(engine, session, rows, tokens, position):
            # What a row chooses by itself loses nothing, by every rule.
            found.append(np.zeros(len(tokens)))
            continue
        seen = await logits(engine, rows)
        other = None if beside is None else await logits(engine, beside)
        found.append(
            await asyncio.to_thread(_first_margins, session, seen, other, tokens, position=position, ruled=ruled)
        )
    return np.concatenate(found)


async def _chose(
    engine: Engine, session: JudgedSession, rows: NDArray[Any], tokens: tuple[int, ...], position: int
) -> bool:
    """Whether the engine says that these rows of a trace chose these tokens; it is not asked of float32 rows of a
    bfloat16 class, which are the reference's."""
    if not says_choices(engine) or (engine.dtype != 0 and rows.dtype == np.float32):
        return False
    sampling, seed = Sampling.of(session.seat.request), session.seat.noise_seed
    block = rows[position : position + len(tokens)]
    return tuple(await engine.choices(block, sampling, seed=seed, first_position=position)) == tokens


async def judge_doubted_text(
    engine: Engine,
    session: JudgedSession,
    runs: tuple[NDArray[Any], ...],
    reference: NDArray[Any] | None,
    text: tuple[int, ...],
    *,
    third: ThirdLook | None = None,
) -> TokenReport:
    """Judge every token of a text in the eyes of the kindest judge: the own runs, and the reference if there is one.

    ``third``: the lightly shaken runs are judges, too, and all of them say how far noise reaches.
    """
    request, by_judges, noise = session.seat.request, [], []
    lightly, strongly = ((), ()) if third is None else (third.lightly, third.strongly)
    async for position, tokens, logits, ruled in blocks(engine, session, text):
        seen = [await logits(engine, rows) for rows in runs]
        seen += [await logits(engine, rows, cut=True) for rows in lightly]
        if reference is not None:
            seen.append(await logits(engine, reference))
        noise.append(await asyncio.to_thread(rows_apart, seen, ruled))
        if strongly:
            far = [*[await logits(engine, rows, cut=True) for rows in strongly], seen[-1]]
            noise[-1] = np.maximum(noise[-1], BY_HALF * await asyncio.to_thread(rows_apart, far, ruled))
        lost = await asyncio.to_thread(
            _second_margins, session, seen, noise[-1], tokens, position=position, ruled=ruled
        )
        by_judges.append(lost)
    rules = session.seat.execution_class
    cut, version = rules.margin_cut / 1_000_000, rules_version(rules.calibration)
    return judge_doubted_tokens(
        np.concatenate(by_judges, axis=1), np.concatenate(noise), text, request, cut, version=version
    )


def _first_margins(
    session: JudgedSession,
    logits: NDArray[Any],
    beside: NDArray[Any] | None,
    tokens: tuple[int, ...],
    *,
    position: int,
    ruled: Ruled,
) -> NDArray[np.float64]:
    """What a block's tokens lose at the first look, by the class's rules."""
    sampling, seed = Sampling.of(session.seat.request), session.seat.noise_seed
    rules = session.seat.execution_class
    if rules.exact or rules_version(rules.calibration) < 3:
        # Nothing says how far noise reaches without a second run, and a head's rounding may end a nucleus.
        return margins(logits, tokens, sampling, ruled, seed=seed, first_position=position)
    return first_look(logits, tokens, sampling, ruled, beside=beside, seed=seed, first_position=position)


def _second_margins(
    session: JudgedSession,
    seen: list[NDArray[Any]],
    noise: NDArray[np.float64],
    tokens: tuple[int, ...],
    *,
    position: int,
    ruled: Ruled,
) -> NDArray[np.float64]:
    """What a block's tokens lose by each judge at the second look, judges x tokens."""
    sampling, seed = Sampling.of(session.seat.request), session.seat.noise_seed
    if rules_version(session.seat.execution_class.calibration) < 3:
        return np.array([margins(one, tokens, sampling, ruled, seed=seed, first_position=position) for one in seen])
    lost = [losses(one, tokens, sampling, ruled, seed=seed, first_position=position) for one in seen]
    return np.array([one.counted(reach(noise)) for one in lost])


@dataclass(frozen=True, slots=True)
class TextFound:
    """A text at the first look: its report, at which places the verifier's own choices are ``differing`` from it, and
    what its tokens ``lost`` and those ``own`` choices lose, in logits, each of shape (tokens,); ``foreseen``: how many
    of the first tokens a client may have foreseen."""

    report: TokenReport
    differing: tuple[int, ...]
    lost: NDArray[np.float64]
    own: NDArray[np.float64]
    foreseen: int = 0

    def sums(self, first: int = 0) -> tuple[float, float]:
        """What its tokens lose from one on, and what own choices lose."""
        lost, own = (np.minimum(one[first:], MARGIN_CLIP).sum() for one in (self.lost, self.own))
        return float(lost), float(own)


async def judge_by_own(engine: Engine, session: JudgedSession, own: NDArray[Any]) -> TextFound:
    """Judge a text by this node's own rows, in a class whose rows have next to no noise."""
    lost = await _text_margins(engine, session, own, session.tokens, None)
    cut = session.seat.execution_class.margin_cut / 1_000_000
    report = judge_tokens(lost, session.tokens, session.seat.request, cut)
    return TextFound(report, tuple(np.flatnonzero(lost).tolist()), lost, np.zeros(len(lost)))


async def judge_beside_own(
    engine: Engine, session: JudgedSession, own: NDArray[Any], reference: NDArray[Any]
) -> TextFound:
    """Judge a text by the reference, and this node's own choices along it, block by block: both share noise."""
    request, found, lost, differing = session.seat.request, [], [], list[int]()
    sampling, seed = Sampling.of(request), session.seat.noise_seed
    first, foresight = len(request.prompt_tokens) - 1, Foresight(sampling)

    def both(low: NDArray[Any], high: NDArray[Any], tokens: tuple[int, ...], position: int, ruled: Ruled) -> Any:
        mine = choices(low, sampling, ruled, seed=seed, first_position=position, guesses=tokens)
        theirs = _first_margins(session, high, low, tokens, position=position, ruled=ruled)
        own = theirs.copy()
        for row in np.flatnonzero(np.array(mine) != tokens).tolist():
            differing.append(position + row - first)
            one = slice(row, row + 1)
            rule, place = None if ruled is None else ruled[one], position + row
            own[one] = _first_margins(session, high[one], low[one], tuple(mine[one]), position=place, ruled=rule)
        foresight.follow(high, tokens, ruled)
        return theirs, own

    async for position, tokens, logits, ruled in blocks(engine, session, session.tokens):
        low, high = await logits(engine, own), await logits(engine, reference)
        theirs, mine = await asyncio.to_thread(both, low, high, tokens, position, ruled)
        found.append(theirs)
        lost.append(mine)
    cut, theirs = session.seat.execution_class.margin_cut / 1_000_000, np.concatenate(found)
    report = judge_tokens(theirs, session.tokens, request, cut)
    return TextFound(report, tuple(differing), theirs, np.concatenate(lost), foresight.foreseen)


async def _logits(first: int, block: slice, engine: Engine, rows: NDArray[Any], *, cut: bool = False) -> NDArray[Any]:
    """Of a block of a text, which begins with row ``first`` of a trace; ``cut``: the rows are the text's alone."""
    begin = 0 if cut else first
    return (await engine.logits(rows[begin + block.start : begin + block.stop])).rows


def rules_of(engine: Engine, request: Request) -> TextRules | None:
    """What transforms the rows of a request's text, by the engine's own tokenizer; raises InvalidGrammar."""
    if not request.transforms.any:
        return None
    return text_rules(request, engine.vocabulary, engine.tokenizer if request.transforms.grammar else "")


async def blocks(
    engine: Engine, session: JudgedSession, text: tuple[int, ...]
) -> AsyncIterator[tuple[int, tuple[int, ...], LogitsOf, Ruled]]:
    """A block of the text at a time: position of the first row, tokens, a function from engine and rows to logits, and
    what transforms each row."""
    first = len(session.seat.request.prompt_tokens) - 1
    rules = (
        await asyncio.to_thread(rules_of, engine, session.seat.request) if session.seat.request.transforms.any else None
    )
    for start in range(0, len(text), LOGIT_ROWS):
        tokens = text[start : start + LOGIT_ROWS]
        ruled = None if rules is None else await asyncio.to_thread(rules.along, tokens)
        yield first + start, tokens, partial(_logits, first, slice(start, start + len(tokens))), ruled
