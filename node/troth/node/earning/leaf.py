"""One number on a tab: the work that a scheduler promised to pay, how far it came, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from troth.protocol.market import canonical
from troth.protocol.market.leaves import NO_TRACE, CheckLeaf, InferenceLeaf, ShownTraces
from troth.protocol.market.messages import DOUBTS, Signed, case_id, summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import Opinion, Promise, Work
from troth.protocol.market.state import State
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32

EVIDENCE_LIMIT = 1 << 20
"""Bytes of one stored leaf; a check of 32 segments with two tiles has 10 kB."""


class Stage(IntEnum):
    """How far a promised piece of work came."""

    RUNNING = 0
    DONE = 1
    ENDED = 2
    """Without a result or a verdict: nothing is owed."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A promise that was taken on; ``evidence`` is the canonical InferenceLeaf or CheckLeaf once it is done.

    ``subject`` is whose result a check is about, else this node itself. ``price`` is the most it
    costs, ``worth`` what its result makes of it. Times are Unix seconds.
    """

    tab: Hash32
    number: int
    order: Hash32
    segment: int
    work: Work
    promise: Signed[Promise]
    subject: Address
    begun_at: float
    begun_block: int
    stage: Stage = Stage.RUNNING
    worth: int = 0
    evidence: bytes = b""
    done_at: float = 0.0
    done_block: int = 0
    prompt: int = 0
    cached: int = 0
    written: int = 0
    given_up: bool = False

    @property
    def price(self) -> int:
        """The most it can cost."""
        return self.promise.message.price

    @property
    def reference_block(self) -> int:
        """The order's, by which convictions void it."""
        return self.promise.message.reference_block

    def shown(self) -> InferenceLeaf | CheckLeaf:
        """What an answer to an objection shows."""
        if self.work is Work.INFERENCE:
            return canonical.decode(InferenceLeaf, self.evidence, EVIDENCE_LIMIT)
        return canonical.decode(CheckLeaf, self.evidence, EVIDENCE_LIMIT)

    @property
    def traces(self) -> bytes:
        """Canonical ShownTraces, by which its payer knows that a check was computed; empty where it accepted, or shows
        none."""
        if self.work is not Work.CHECK or not self.evidence:
            return b""
        check = canonical.decode(CheckLeaf, self.evidence, EVIDENCE_LIMIT).check
        if check.verdict.opinion == Opinion.ACCEPT or check.own == NO_TRACE:
            return b""
        return canonical.encode(ShownTraces(check.own, check.judged))

    def value(self, state: State, me: Address) -> int:
        """What its payer must pay or authorise for it, by this node's own view of the chain.

        A running one counts with its price. What the court voided, and what nobody answered a summons for, is worth
        nothing. A check is worth its price if it accepted or shows that it was computed, whatever became of the result;
        any other only once the result fell.
        """
        if self.stage is Stage.RUNNING:
            return self.price
        if self.stage is Stage.ENDED or state.is_void(me, self.reference_block):
            return 0
        if self.work is Work.INFERENCE:
            return 0 if _fell(state, self.order, self.segment) else self.worth
        return self.worth if self._check_counts(state) else 0

    @property
    def denies(self) -> bool:
        """It is a verdict that is owed only once the result falls."""
        return self.stage is Stage.DONE and self.work is Work.CHECK and not _proves_work(self.evidence)

    def may_fall(self, state: State, block: int) -> bool:
        """Whether the result that this verdict denies may still fall: for a lag, and while a case over it goes on.

        A scheduler says that nothing is owed after two lags.
        """
        names = (case_id(self.order, self.segment), case_id(self.order, DOUBTS + self.segment))
        live = any(one in state.cases and state.cases[one].live for one in names)
        return live or block <= self.done_block + parameters_of(state).lag

    def _check_counts(self, state: State) -> bool:
        if _proves_work(self.evidence):
            return True
        return state.is_void(self.subject, self.reference_block) or state.is_voided(self.order, self.segment)


@lru_cache(maxsize=1 << 12)
def _proves_work(evidence: bytes) -> bool:
    """Whether a stored check said yes, or shows traces that agree."""
    check = canonical.decode(CheckLeaf, evidence, EVIDENCE_LIMIT).check
    return check.verdict.opinion == Opinion.ACCEPT or check.own != NO_TRACE


def _fell(state: State, order: Hash32, segment: int) -> bool:
    summoned = state.summons.get(summons_id(order, SummonsKind.RESULTS, 0))
    return state.is_voided(order, segment) or (summoned is not None and summoned.answered is False)
