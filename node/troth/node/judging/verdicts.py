"""What a verifier finds of an inferencer's trace, and its verdict."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from troth.node.engine.interface import Engine
from troth.node.judging.own_rows import judge_straying
from troth.node.judging.runs import (
    FIFTH_RULES,
    ThirdLook,
    other_attention,
    reference_rows,
    second_run,
    shaken_runs,
    third_look,
)
from troth.node.judging.sessions import JudgedSession
from troth.node.judging.texts import TextFound, judge_beside_own, judge_by_own, judge_doubted_text
from troth.node.judging.upstream import judge_from_prompt
from troth.protocol.comparison import StateReport, judge_states
from troth.protocol.doubts import SIXTH_RULES, rules_version
from troth.protocol.findings import LOOKED_AT, MEAN_RATIO, TaskFinding, of_precise_text, of_text, of_trace
from troth.protocol.market.types import ExecutionClass
from troth.protocol.pooling import EMPTY, MarginSums
from troth.protocol.scores import mean_ratio, rho
from troth.protocol.sequential import NodeEvidence
from troth.protocol.statistics import PaperStatistics
from troth.protocol.straying import FAITHFUL, Straying
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, TokenReport

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a verifier found; the verdict is the conjunction.

    ``straying``: how far the text is from the inferencer's own rows, by the fifth rules. ``text`` is its share of the
    ``pool``, both empty under the second rules: there ``findings`` are this task's, and ``evidence`` what all tasks of
    this inferencer come to. ``from_prompt``: the text by states that start at the prompt, in a bfloat16 pipeline whose
    layers this verifier holds all. ``second_cut``: first cuts from which on a court takes stake.
    """

    root_matches: bool
    states: StateReport
    tokens: TokenReport | None
    text: MarginSums = EMPTY
    pool: MarginSums = EMPTY
    findings: tuple[TaskFinding, ...] = ()
    evidence: tuple[NodeEvidence, ...] = ()
    straying: Straying = FAITHFUL
    from_prompt: TokenReport | None = None
    second_cut: float = math.inf

    @property
    def verdict(self) -> bool:
        """Whether the inferencer's work is accepted."""
        alone = self.root_matches and self.states.accepted and self._text_accepted
        return alone and not self.straying.beyond and self.over_many

    @property
    def refused(self) -> bool:
        """Whether this task alone is refused: a text that nobody can judge is not."""
        return self._text_refused or self.straying.beyond or not self.states.accepted

    @property
    def for_a_court(self) -> bool:
        """Whether a court is asked: about what long windows alone show only where it takes stake for that."""
        beyond = self.states.staked and self.states.excess > self.second_cut
        spared = self.states.by_long_windows and not beyond
        return self._text_refused or self.straying.beyond or not (self.states.accepted or spared)

    @property
    def by_long_windows(self) -> bool:
        """Whether the inferencer's own trace is refused, and by nothing but long windows."""
        others = self._text_refused or self.straying.beyond
        return self.root_matches and self.states.by_long_windows and not others

    @property
    def over_many(self) -> bool:
        """Whether all tasks together speak for the inferencer, or not against it."""
        return self.pool.accepted and all(one.accepted for one in self.evidence)

    @property
    def told(self) -> bool:
        """Whether it can be told: the inferencer is not to blame for a row that was bent before it got it."""
        return self.root_matches and (self.tokens is None or self.tokens.told) and not self.steered

    @property
    def steered(self) -> bool:
        """Whether honest nodes before would have led to another text."""
        return self.from_prompt is not None and not self.from_prompt.accepted

    @property
    def _text_refused(self) -> bool:
        return self.tokens is not None and not self.tokens.accepted and self.tokens.told

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
        text = await judge_by_own(engine, session, own)
    else:
        text = await judge_beside_own(engine, session, own, reference)
    second_cut = seat.execution_class.second_cut / 1_000_000
    found = Judgement(root_matches, states, None if text is None else text.report, second_cut=second_cut)
    version = rules_version(seat.execution_class.calibration)
    if version >= 2:
        if not seat.execution_class.exact:
            found = await _further_looks(engine, session, claimed, reference, found)
        if version >= FIFTH_RULES and text is not None and found.states.accepted:
            found = replace(found, straying=await judge_straying(engine, session, claimed, text.differing))
            if not found.refused:
                found = replace(found, from_prompt=await judge_from_prompt(engine, session))
        if reference is None:
            return replace(found, findings=_precise_findings(session, found))
        return replace(found, findings=_noisy_findings(session, found, text, (claimed, own, reference)))
    if text is None or reference is None:
        return found
    return replace(found, text=MarginSums(len(session.tokens), *text.sums()))


def _precise_findings(session: JudgedSession, found: Judgement) -> tuple[TaskFinding, ...]:
    """What this task says in a float32 or an exact class."""
    exact = session.seat.execution_class.exact
    return () if found.tokens is None else (of_precise_text(found.tokens, found.straying if exact else None),)


def _noisy_findings(
    session: JudgedSession, found: Judgement, text: TextFound | None, rows: tuple[NDArray[Any], ...]
) -> tuple[TaskFinding, ...]:
    """What this task says in a tolerant bfloat16 class; ``rows``: claimed, own, and those of the reference."""
    states = of_trace(found.states, found.straying)
    if text is None or not found.states.accepted or text.foreseen == len(session.tokens):
        return (states,)
    claimed, own, reference = (one[len(one) - len(session.tokens) + text.foreseen :] for one in rows)
    noise = mean_ratio(rho(widen(claimed, Dtype.BFLOAT16), [widen(own, Dtype.BFLOAT16)], reference))
    lost, mine = text.sums(text.foreseen)
    said = of_text(Sampling.of(session.seat.request), lost=lost, own=mine, noise=noise)
    return (states,) if said is None else (states, said)


async def _further_looks(
    engine: Engine, session: JudgedSession, claimed: NDArray[Any], reference: NDArray[Any] | None, found: Judgement
) -> Judgement:
    """What is refused or counts against the inferencer, judged by several runs of this node's own; what still does, by
    runs with other last bits."""
    tokens = found.tokens
    doubts_states = not found.states.accepted or (
        reference is not None and _looked_at(session.seat.execution_class, found.states)
    )
    doubts_text = tokens is not None and not tokens.accepted
    if tokens is not None and reference is None:
        doubts_text = doubts_text or bool(of_precise_text(tokens).value)
    if not doubts_states and not doubts_text:
        return found
    runs = (session.all_outputs(), await second_run(engine, session), *await shaken_runs(engine, session))
    otherwise = await other_attention(engine, session) if doubts_states else None
    looks = _FurtherLooks(engine, session, claimed, reference, runs, otherwise)
    found = await looks.at(found, states=doubts_states, text=doubts_text)
    doubts_states = doubts_states and (not found.states.accepted or found.states.mean > MEAN_RATIO)
    doubts_text = doubts_text and found.tokens is not None and not found.tokens.accepted
    if (doubts_states or doubts_text) and (third := await third_look(engine, session, reference)):
        found = await looks.at(found, third, states=doubts_states, text=doubts_text)
    return found


@dataclass(frozen=True, slots=True)
class _FurtherLooks:
    """A trace and a text, with this node's own ``runs`` of the same positions, and the one with other attention."""

    engine: Engine
    session: JudgedSession
    claimed: NDArray[Any]
    reference: NDArray[Any] | None
    runs: tuple[NDArray[Any], ...]
    otherwise: NDArray[Any] | None

    async def at(self, found: Judgement, third: ThirdLook | None = None, *, states: bool, text: bool) -> Judgement:
        """What was found, with ``states`` and ``text`` judged anew where these are doubted; ``third``: by more runs."""
        if states:
            own, *others = self.runs
            look = partial(judge_states, self.session.seat.execution_class, self.claimed, own, self.reference, *others)
            look = partial(look, otherwise=self.otherwise, shaken=third and third.states)
            found = replace(found, states=await asyncio.to_thread(look))
        if text:
            runs, told = (self.runs, self.reference), self.session.tokens
            judged = await judge_doubted_text(self.engine, self.session, *runs, told, third=third)
            found = replace(found, tokens=judged)
        return found


def _looked_at(rules: ExecutionClass, states: StateReport) -> bool:
    """Whether the mean over a bfloat16 trace wants a second look."""
    return states.mean > (MEAN_RATIO if rules_version(rules.calibration) < SIXTH_RULES else LOOKED_AT)


def report(judgement: Judgement) -> None:
    """Log a judgement, for the operator who wonders about a verdict."""
    states, tokens, pool = judgement.states, judgement.tokens, judgement.pool
    log.info(
        "compared: verdict %s, root %s, states %.3g of %.3g (worst row %.3g at %d), tokens %s%s",
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
        "" if states.statistics is None else f"; {_in_words(states.statistics)}",
    )
    if judgement.from_prompt is not None and judgement.steered:
        log.warning(
            "cannot tell: from the prompt the text scores %.3g of %.3g, so a row before this segment steered it",
            judgement.from_prompt.score,
            judgement.from_prompt.cut,
        )


def _in_words(found: PaperStatistics) -> str:
    """The four numbers of the paper, which decide nothing."""
    return (
        f"exponents differ {found.exponent_mismatch:.3g}, of them by much {found.large_deviation:.3g}, "
        f"of the rest by little {found.small_deviation:.3g}, mean error {found.mean_error:.3g}"
    )
