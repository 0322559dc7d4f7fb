"""A verifier's judgement of an inferencer's trace: root, states, tokens, and tokens pooled over tasks.

Where a class says so (`troth.protocol.doubts`), a verifier that doubts runs the same positions once more, otherwise
than the first time, and judges by both runs: no prompt makes an honest node a cheat.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import Engine, SessionKey, ShakingEngine
from troth.protocol.comparison import StateReport, Tolerance, judge_states
from troth.protocol.doubts import first_look, judge_doubted_tokens, reach, rows_apart, rules_version
from troth.protocol.findings import TaskFinding, of_precise_text, of_states, of_text, of_trace
from troth.protocol.margins import losses, margins
from troth.protocol.masks import RowRule, TextRules, text_rules
from troth.protocol.pooling import EMPTY, MarginSums
from troth.protocol.request import Request
from troth.protocol.sequential import NodeEvidence
from troth.protocol.straying import FAITHFUL, Straying, kinder, strays
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, TokenReport, choices, judge_tokens
from troth.protocol.types import Hash32, Segment

log = logging.getLogger(__name__)

LOGIT_ROWS = 32
"""Rows whose logits are held at a time: 32 rows of a large vocabulary are tens of megabytes, a whole text is not."""
SECOND_RUN = b"troth/second run/"
"""Names the caches of these runs as no order is named."""
PIECE, PIECES = 7, 8
"""Positions of a piece that a second run cuts a prompt in, and how many; the rest of the prompt is one more. So few
rows are multiplied by another routine than many, and what comes after them sees their keys and values."""

FIFTH_RULES = 5
"""From these on a text is judged by its node's own rows, too, and float32 rows by runs with other last bits."""
SHAKEN = 2
"""Such runs. One in a hundred would miss a row that rounding moves in one direction alone."""
Ruled = Sequence[RowRule] | None
"""What transforms each row of a block; None: nothing."""
LogitsOf = Callable[[Engine, NDArray[Any]], Awaitable[NDArray[Any]]]


class OutcomeCuts(Tolerance, Protocol):
    """What of an execution class decides a verdict."""

    @property
    def margin_cut(self) -> int: ...


class JudgedSegment(Protocol):
    """Which segment of which order is judged. Only who judges the first or the last one is shown the ``request``."""

    @property
    def execution_class(self) -> OutcomeCuts: ...
    @property
    def layers(self) -> Segment: ...
    @property
    def dtype(self) -> Dtype: ...
    @property
    def is_last(self) -> bool: ...
    @property
    def prompt_positions(self) -> int: ...
    @property
    def request(self) -> Request: ...
    @property
    def noise_seed(self) -> Hash32: ...


class JudgedSession(Protocol):
    """A verifier's session: what it was given and what it computed."""

    @property
    def seat(self) -> JudgedSegment: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...
    def all_inputs(self) -> NDArray[Any]: ...
    def all_outputs(self) -> NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a verifier found; the verdict is the conjunction.

    ``straying``: how far the text is from the inferencer's own rows, by the fifth rules. ``text`` is its share of the
    ``pool``, both empty under the second rules: there ``findings`` are this task's, and ``evidence`` what all tasks of
    this inferencer come to.
    """

    root_matches: bool
    states: StateReport
    tokens: TokenReport | None
    text: MarginSums = EMPTY
    pool: MarginSums = EMPTY
    findings: tuple[TaskFinding, ...] = ()
    evidence: tuple[NodeEvidence, ...] = ()
    straying: Straying = FAITHFUL

    @property
    def verdict(self) -> bool:
        """Whether the inferencer's work is accepted."""
        alone = self.root_matches and self.states.accepted and self._text_accepted
        return alone and not self.straying.beyond and self.over_many

    @property
    def refused(self) -> bool:
        """Whether this task alone is refused: a text that nobody can judge is not."""
        text = self.tokens is not None and not self.tokens.accepted and self.tokens.told
        return text or self.straying.beyond or not self.states.accepted

    @property
    def over_many(self) -> bool:
        """Whether all tasks together speak for the inferencer, or not against it."""
        return self.pool.accepted and all(one.accepted for one in self.evidence)

    @property
    def told(self) -> bool:
        """Whether it can be told."""
        return self.root_matches and (self.tokens is None or self.tokens.told)

    @property
    def _text_accepted(self) -> bool:
        return self.tokens is None or self.tokens.accepted


async def judge_rows(engine: Engine, session: JudgedSession, claimed: NDArray[Any], *, root_matches: bool) -> Judgement:
    """Judge the claimed rows against this node's own; the caller has compared the root. Nothing is pooled yet."""
    seat, own = session.seat, session.all_outputs()
    reference = await reference_rows(engine, session)
    states = await asyncio.to_thread(judge_states, seat.execution_class, claimed, own, reference)
    if not seat.is_last:
        text = None
    elif reference is None:
        text = await _judge_by_own(engine, session, own)
    else:
        text = await _judge_beside_own(engine, session, own, reference)
    found = Judgement(root_matches, states, None if text is None else text.report)
    version = rules_version(seat.execution_class.calibration)
    if version >= 2:
        if not seat.execution_class.exact:
            found = await _second_look(engine, session, claimed, reference, found)
        if version >= FIFTH_RULES and text is not None and found.states.accepted:
            found = replace(found, straying=await judge_straying(engine, session, claimed, text.differing))
        return replace(found, findings=_findings(session, found, text, precise=reference is None))
    if text is None or reference is None:
        return found
    return replace(found, text=MarginSums(len(session.tokens), text.lost(len(session.tokens)), text.own))


def _findings(
    session: JudgedSession, found: Judgement, text: _Text | None, *, precise: bool
) -> tuple[TaskFinding, ...]:
    """What this task says; ``precise``: without a reference, in a float32 or an exact class."""
    if precise:
        exact = session.seat.execution_class.exact
        return () if found.tokens is None else (of_precise_text(found.tokens, found.straying if exact else None),)
    states = of_trace(found.states, found.straying)
    if text is None:
        return (states,)
    said = of_text(Sampling.of(session.seat.request), lost=text.lost(len(session.tokens)), own=text.own)
    return (states,) if said is None else (states, said)


async def _second_look(
    engine: Engine, session: JudgedSession, claimed: NDArray[Any], reference: NDArray[Any] | None, found: Judgement
) -> Judgement:
    """What is refused or counts against the inferencer, judged by several runs of this node's own."""
    rules, own, states, tokens = session.seat.execution_class, session.all_outputs(), found.states, found.tokens
    doubts_states = not states.accepted or (reference is not None and bool(of_states(states).value))
    doubts_text = tokens is not None and not tokens.accepted
    if tokens is not None and reference is None:
        doubts_text = doubts_text or bool(of_precise_text(tokens).value)
    if not doubts_states and not doubts_text:
        return found
    others = [await second_run(engine, session), *await shaken_runs(engine, session)]
    if doubts_states:
        states = await asyncio.to_thread(judge_states, rules, claimed, own, reference, *others)
    if doubts_text:
        tokens = await judge_doubted_text(engine, session, (own, *others), reference, session.tokens)
    return replace(found, states=states, tokens=tokens)


def looks_twice(rules: OutcomeCuts) -> bool:
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
    return [await engine.shaken(session.seat.layers, session.all_inputs()) for _ in range(SHAKEN)]


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
    if session.seat.dtype is not Dtype.BFLOAT16 or session.seat.execution_class.exact:
        return None
    return await engine.reference(session.seat.layers, session.all_inputs())


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
    found = []
    async for position, tokens, logits, ruled in _blocks(engine, session, text):
        seen = await logits(engine, rows)
        other = None if beside is None else await logits(engine, beside)
        found.append(
            await asyncio.to_thread(_first_margins, session, seen, other, tokens, position=position, ruled=ruled)
        )
    return np.concatenate(found)


async def judge_doubted_text(
    engine: Engine,
    session: JudgedSession,
    runs: tuple[NDArray[Any], ...],
    reference: NDArray[Any] | None,
    text: tuple[int, ...],
) -> TokenReport:
    """Judge every token of a text in the eyes of the kindest judge: the own runs, and the reference if there is one."""
    request, by_judges, noise = session.seat.request, [], []
    judges = runs if reference is None else (*runs, reference)
    async for position, tokens, logits, ruled in _blocks(engine, session, text):
        seen = [await logits(engine, rows) for rows in judges]
        noise.append(await asyncio.to_thread(rows_apart, seen, ruled))
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
class _Text:
    """A text at the first look: its report, what the verifier's ``own`` choices along it lose, in logits, and at which
    places they are ``differing`` from it."""

    report: TokenReport
    differing: tuple[int, ...]
    own: float = 0.0

    def lost(self, tokens: int) -> float:
        """What so many tokens of it lose."""
        return self.report.mean_margin * tokens


async def _judge_by_own(engine: Engine, session: JudgedSession, own: NDArray[Any]) -> _Text:
    """Judge a text by this node's own rows, in a class whose rows have next to no noise."""
    lost = await _text_margins(engine, session, own, session.tokens, None)
    cut = session.seat.execution_class.margin_cut / 1_000_000
    report = judge_tokens(lost, session.tokens, session.seat.request, cut)
    return _Text(report, tuple(np.flatnonzero(lost).tolist()))


async def _judge_beside_own(
    engine: Engine, session: JudgedSession, own: NDArray[Any], reference: NDArray[Any]
) -> _Text:
    """Judge a text by the reference, and this node's own choices along it, block by block: both share noise."""
    request, found, lost, differing = session.seat.request, [], 0.0, list[int]()
    sampling, seed = Sampling.of(request), session.seat.noise_seed
    first = len(request.prompt_tokens) - 1

    def both(low: NDArray[Any], high: NDArray[Any], tokens: tuple[int, ...], position: int, ruled: Ruled) -> Any:
        mine = choices(low, sampling, ruled, seed=seed, first_position=position, guesses=tokens)
        theirs = _first_margins(session, high, low, tokens, position=position, ruled=ruled)
        own = theirs.copy()
        for row in np.flatnonzero(np.array(mine) != tokens).tolist():
            differing.append(position + row - first)
            one = slice(row, row + 1)
            rule, place = None if ruled is None else ruled[one], position + row
            own[one] = _first_margins(session, high[one], low[one], tuple(mine[one]), position=place, ruled=rule)
        return theirs, float(own.sum())

    async for position, tokens, logits, ruled in _blocks(engine, session, session.tokens):
        low, high = await logits(engine, own), await logits(engine, reference)
        theirs, mine = await asyncio.to_thread(both, low, high, tokens, position, ruled)
        found.append(theirs)
        lost += mine
    cut = session.seat.execution_class.margin_cut / 1_000_000
    return _Text(judge_tokens(np.concatenate(found), session.tokens, request, cut), tuple(differing), lost)


async def judge_straying(
    engine: Engine, session: JudgedSession, claimed: NDArray[Any], places: Iterable[int]
) -> Straying:
    """How far the tokens at some places of the text are from what the inferencer's own rows choose there."""
    found, wanted = list[Straying](), set(places)
    first, chosen = len(session.seat.request.prompt_tokens) - 1, list[_Claimed]()
    async for position, tokens, _, ruled in _blocks(engine, session, session.tokens if wanted else ()):
        rows = [row for row in range(len(tokens)) if position + row - first in wanted]
        block = claimed[position : position + len(tokens)]
        chosen.append(_Claimed(block, tokens, ruled, range(position, position + len(tokens))).only(rows))
    # The head is read for all of them together: it is most of what this costs.
    if chosen:
        together = _Claimed.joined(chosen)
        rows = range(len(together.tokens))
        for start in rows[::LOGIT_ROWS]:
            found += await _strays_by_both(engine, session, together.only(rows[start : start + LOGIT_ROWS]))
    return reduce(or_, found, FAITHFUL)


async def _strays_by_both(engine: Engine, session: JudgedSession, claimed: _Claimed) -> list[Straying]:
    """By the kinder of both heads: the one that rounds nothing is asked where the class's own finds something."""
    by_rows = await _strays(engine, session, claimed)
    doubted = [index for index, one in enumerate(by_rows) if one.worst]
    if doubted and session.seat.dtype is Dtype.BFLOAT16:
        unrounded = await _strays(engine, session, claimed.only(doubted), widened=True)
        for index, other in zip(doubted, unrounded, strict=True):
            by_rows[index] = kinder(by_rows[index], other)
    return by_rows


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Rows of the inferencer's, the tokens that it chose by them, what transforms them, and their places."""

    states: NDArray[Any]
    tokens: Sequence[int]
    rules: Ruled
    places: Sequence[int]

    @classmethod
    def joined(cls, parts: Sequence[_Claimed]) -> _Claimed:
        """Several together: all of one text have rules, or none."""
        rules = None if parts[0].rules is None else [rule for one in parts for rule in one.rules or ()]
        return cls(
            np.concatenate([one.states for one in parts]),
            [token for one in parts for token in one.tokens],
            rules,
            [place for one in parts for place in one.places],
        )

    def only(self, rows: Sequence[int]) -> _Claimed:
        """Some of them."""
        rules = None if self.rules is None else [self.rules[row] for row in rows]
        places = [self.places[row] for row in rows]
        return _Claimed(self.states[list(rows)], [self.tokens[row] for row in rows], rules, places)


async def _strays(
    engine: Engine, session: JudgedSession, claimed: _Claimed, *, widened: bool = False
) -> list[Straying]:
    """How far each token is from its row, by the class's head or by the one that rounds nothing."""
    seat = session.seat
    states = widen(claimed.states, seat.dtype) if widened else claimed.states
    told = partial(strays, dtype=seat.dtype, seed=seat.noise_seed, positions=claimed.places)
    logits = (await engine.logits(states)).rows
    return await asyncio.to_thread(told, logits, claimed.tokens, Sampling.of(seat.request), claimed.rules)


async def _logits(start: int, count: int, engine: Engine, rows: NDArray[Any]) -> NDArray[Any]:
    return (await engine.logits(rows[start : start + count])).rows


def rules_of(engine: Engine, request: Request) -> TextRules | None:
    """What transforms the rows of a request's text, by the engine's own tokenizer; raises InvalidGrammar."""
    if not request.transforms.any:
        return None
    return text_rules(request, engine.vocabulary, engine.tokenizer if request.transforms.grammar else "")


async def _blocks(
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
        yield first + start, tokens, partial(_logits, first + start, len(tokens)), ruled


def report(judgement: Judgement) -> None:
    """Log a judgement, for the operator who wonders about a verdict."""
    states, tokens, pool = judgement.states, judgement.tokens, judgement.pool
    log.info(
        "compared: verdict %s, root %s, states %.3g of %.3g (worst row %.3g at %d), tokens %s",
        "accept" if judgement.verdict else "reject",
        "matches" if judgement.root_matches else "differs",
        states.score,
        states.cut,
        states.worst_row,
        states.worst_position,
        "not judged"
        if tokens is None
        else f"{tokens.score:.3g} of {tokens.cut:.3g}, end {'ok' if tokens.end_ok else 'wrong'}, "
        f"pooled {pool.ratio:.2f} over {pool.tokens} tokens",
    )
