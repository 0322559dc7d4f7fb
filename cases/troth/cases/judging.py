"""A reviewer's opinion: its own trace against the node's rows, in the form that the court compares.

``Recompute`` is the seam to the engine. Score and spread are in millionths of the class's first cut: the score is the
worse of states and text, the spread how far a second run of one's own lies from the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from troth.cases.materials import OrderText, Papers, counts_truly
from troth.protocol.comparison import StateReport, judge_states
from troth.protocol.doubts import SIXTH_RULES, rules_version
from troth.protocol.errors import ProtocolError
from troth.protocol.findings import LOOKED_AT, MEAN_RATIO
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import ExecutionClass, Rules
from troth.protocol.straying import FAITHFUL, Straying
from troth.protocol.tensors import Dtype, RowArray, rows_from_bytes
from troth.protocol.tokens import TokenReport
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import ZERO_HASH, Hash32, Segment
from troth.protocol.unsteady import ShakenRuns

MILLION = 1_000_000
MOST = (1 << 32) - 1
"""A score beyond every cut."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one prefill is made of. ``before``: rows of the segment before, None at the first.

    ``last``: whether the text is checked here, by ``text.seed``; ``claimed``: the rows that the node shows, if it does.
    """

    order: Hash32
    execution_class: Hash32
    span: Segment
    text: OrderText
    before: bytes | None
    last: bool
    claimed: bytes | None = None


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The engine's own run: rows x columns in the class's format.

    ``high``: the float32 prefill of a tolerant bfloat16 class; ``again``: a second run, computed another way (None: the
    class has no noise); ``shaken``: runs with changed last bits in float32, where the engine has them; ``at_third``:
    those in bfloat16, by the seventh rules; ``otherwise``: one with other attention, by the sixth; ``text``: at the
    last segment, with how far it strays from the node's own rows.
    """

    states: RowArray
    high: NDArray[np.float32] | None = None
    again: RowArray | None = None
    text: TokenReport | None = None
    straying: Straying = FAITHFUL
    shaken: tuple[RowArray, ...] = ()
    at_third: ShakenRuns | None = None
    otherwise: RowArray | None = None


class Recompute(Protocol):
    """The engine of a node. It raises what it likes where it cannot: then the reviewer cannot tell."""

    async def recompute(self, inputs: Inputs) -> Recomputed:
        """One prefill over prompt and answer."""


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """What a reviewer commits to; ``states`` are those whose tiles it opens, None where there is no own trace."""

    opinion: Opinion
    root: Hash32 = ZERO_HASH
    score: int = 0
    spread: int = 0
    states: RowArray | None = None


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """A case with the rules by which it is judged."""

    state: CaseState
    definition: ExecutionClass
    rules: Rules
    papers: Papers
    text: OrderText


def judge(
    context: JudgingContext, own: Recomputed, node_rows: bytes | None, opening: tuple[Hash32, Hash32]
) -> ReviewFinding:
    """The opinion over the node's trace. ``node_rows`` may be None in an exact class, whose roots are compared."""
    states = fitted(own.states, context.state.rows)
    root = Hash32(committed(context.state, context.definition, context.rules, states).root)
    truthful = counts_truly(context.papers, context.text) and (
        own.text is None or own.text.accepted or not own.text.told
    )
    if context.rules.exact:
        same = truthful and root == opening[0] and not own.straying.beyond
        return ReviewFinding(Opinion.ACCEPT if same else Opinion.REJECT, root, states=states)
    score, found = _score(context, own, node_rows, opening[0])
    within, spread = found is not None and found.accepted, _spread(context, own)
    if within and own.straying.beyond:
        return ReviewFinding(Opinion.REJECT, root, MOST, spread, states)  # its own rows say so: no noise excuses it
    untold = own.text is not None and not own.text.told
    if within and truthful and (untold or _lacks_a_run(context, own, found)):
        return ReviewFinding(Opinion.CANNOT_TELL)
    opinion = Opinion.ACCEPT if within and truthful else Opinion.REJECT
    return ReviewFinding(opinion, root, max(score, _text_score(context, own)), spread, states)


def committed(state: CaseState, definition: ExecutionClass, rules: Rules, states: RowArray) -> CommittedTrace:
    """The trace as the court opens it."""
    layout = TileLayout(state.order, definition.model, state.rows, rules.hidden_size, Dtype(rules.dtype))
    return layout.commit(states)


def fitted(states: RowArray, rows: int) -> RowArray:
    """As many rows as the case has: a node that counts others than there are is compared over its own count.

    Rows are repeated from the first on, so that all reviewers open the same.
    """
    if len(states) == rows:
        return states
    places = np.arange(rows) % len(states)
    return np.ascontiguousarray(states[places])


def _score(
    context: JudgingContext, own: Recomputed, node_rows: bytes | None, root: Hash32
) -> tuple[int, StateReport | None]:
    """How far the node's rows lie from the own ones; rows that are not its trace's, or another count, are beyond, and
    have no report."""
    rules, size = context.rules, len(node_rows or b"")
    count = size // (rules.hidden_size * Dtype(rules.dtype).element_bytes)
    if node_rows is None or count != len(own.states):
        return MOST, None
    try:
        claimed = rows_from_bytes(node_rows, count, rules.hidden_size, Dtype(rules.dtype))
    except ProtocolError:
        return MOST, None
    trace = fitted(claimed, context.state.rows)
    if committed(context.state, context.definition, rules, trace).root != root:
        return MOST, None
    report = _report(context, claimed, own)
    return _scaled(context, report), report


def _spread(context: JudgingContext, own: Recomputed) -> int:
    """How far a second run of one's own lies from the first, by what a node is judged by."""
    if own.again is None:
        return 0
    again = judge_states(cast(Any, context.definition), own.again, own.states, own.high, otherwise=own.otherwise)
    return _scaled(context, again)


def _lacks_a_run(context: JudgingContext, own: Recomputed, found: StateReport | None) -> bool:
    """Whether the rules look at what this engine does not compute, so that others may see more."""
    doubted = found is not None and found.mean > MEAN_RATIO and own.otherwise is None
    return doubted and rules_version(context.definition.calibration) >= SIXTH_RULES


def _report(context: JudgingContext, claimed: RowArray, own: Recomputed) -> StateReport:
    found = _first_look(context, claimed, own)
    doubted = not found.accepted or (own.otherwise is not None and found.mean > LOOKED_AT)
    if not doubted or own.again is None or rules_version(context.definition.calibration) < 2:
        return found
    rules = cast(Any, context.definition)
    runs = (own.again, *own.shaken)
    look = partial(judge_states, rules, claimed, own.states, own.high, *runs, otherwise=own.otherwise)
    found = look()
    return found if found.accepted or own.at_third is None else look(shaken=own.at_third)


def _first_look(context: JudgingContext, claimed: RowArray, own: Recomputed) -> StateReport:
    # The cuts are those of the market's class, which has the fields that are compared by.
    return judge_states(cast(Any, context.definition), claimed, own.states, own.high)


def _scaled(context: JudgingContext, report: StateReport) -> int:
    """Millionths of the first cut; a single row counts against its own, larger one. Long windows count beyond the
    second cut alone: between the cuts a court would pool them, and clients choose prompts."""
    if not report.cut > 0:
        return 0
    beyond = report.excess * MILLION > context.rules.second_cut
    cuts = report.held if beyond else report.by_rows
    return MOST if not math.isfinite(cuts) else min(int(cuts * MILLION), MOST)


def _text_score(context: JudgingContext, own: Recomputed) -> int:
    if not counts_truly(context.papers, context.text):
        return MOST
    if own.text is None:
        return 0
    if not own.text.end_ok or not own.text.allowed or not own.text.cut > 0:
        return MOST  # a wrong end or a forbidden token is no matter of noise, however few of them a window hides
    return min(int(own.text.score / own.text.cut * MILLION), MOST)
