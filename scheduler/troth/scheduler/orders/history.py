"""An order as far as it has come: its steps folded, with what is private beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Order, Result, TraceCommitment, Verdict
from troth.protocol.rings import FEWEST
from troth.protocol.types import Address, Hash32
from troth.scheduler.orders.steps import (
    AdmittedStep,
    AnsweredStep,
    CastStep,
    DrawnStep,
    FailedStep,
    FrozenStep,
    HiddenTraceStep,
    JudgedStep,
    OrderStep,
    PromisedCheckStep,
    RevealedStep,
    UnveiledTilesStep,
)


@dataclass(slots=True, weakref_slot=True, eq=False)
class OrderHistory:
    """One order. ``request``, ``salt`` and ``tokens`` are None once they are owed no more."""

    order_id: Hash32
    admitted: AdmittedStep
    request: bytes | None = field(default=None, repr=False)
    salt: Hash32 | None = field(default=None, repr=False)
    tokens: tuple[int, ...] | None = field(default=None, repr=False)
    answered: AnsweredStep | None = None
    drawn: DrawnStep | None = None
    failed: FailedStep | None = None
    revealed: RevealedStep | None = None
    frozen: FrozenStep | None = None
    checks: dict[int, list[PromisedCheckStep]] = field(default_factory=dict)
    commitments: dict[tuple[int, Address], Signed[TraceCommitment]] = field(default_factory=dict)
    verdicts: dict[tuple[int, Address], Signed[Verdict]] = field(default_factory=dict)
    ballots: dict[tuple[int, tuple[bytes, ...]], dict[Address, bytes]] = field(default_factory=dict)
    """By segment and ring: who cast which ring signature."""
    judged_at: int = 0
    drawn_first: int = 0
    unveiled: dict[tuple[int, str, Address], bytes] = field(default_factory=dict)

    @property
    def order(self) -> Order:
        """What its client signed."""
        return self.admitted.order.message

    @property
    def segments(self) -> int:
        """How many there are."""
        return len(self.admitted.nodes)

    @property
    def results(self) -> tuple[Result, ...]:
        """The results' messages; none before the answer."""
        return () if self.answered is None else tuple(one.message for one in self.answered.results)

    def note(self, step: OrderStep) -> None:
        """Fold one more step."""
        match step:
            case AdmittedStep():
                self.admitted = step
            case AnsweredStep():
                self.answered = step
            case DrawnStep():
                block = step.draw.message.block_number
                self.drawn, self.drawn_first = step, self.drawn_first or block
            case FailedStep():
                self.failed = step
            case RevealedStep():
                self.revealed = step
            case FrozenStep():
                self.frozen = step
            case PromisedCheckStep():
                rounds = self.checks.setdefault(step.segment, [])
                rounds.append(step)
                rounds.sort(key=lambda one: one.round)
            case HiddenTraceStep():
                self.commitments[step.commitment.message.segment, step.verifier] = step.commitment
            case JudgedStep():
                self.verdicts[step.verdict.message.segment, step.verifier] = step.verdict
                self.judged_at = max(self.judged_at, step.block)
            case CastStep():
                self.ballots.setdefault((step.segment, step.ring), {})[step.verifier] = step.signature
            case UnveiledTilesStep():
                self.unveiled[step.segment, step.role, step.operator] = step.sealed

    def check_of(self, segment: int) -> PromisedCheckStep | None:
        """The newest round of a segment's check."""
        rounds = self.checks.get(segment)
        return rounds[-1] if rounds else None

    def undecided(self, segment: int) -> list[Address]:
        """Drawn verifiers of a segment without a verdict, in the order of their first seats."""
        check = self.check_of(segment)
        return [] if check is None else [one for one in check.operators if (segment, one) not in self.verdicts]

    @property
    def is_cast(self) -> bool:
        """Whether all that have spoken cast ballots in one ring, wherever more than one has."""
        return all(self._is_cast(segment) for segment in self.checks)

    def _is_cast(self, segment: int) -> bool:
        spoken = {one for one in self.checks[segment][-1].operators if (segment, one) in self.verdicts}
        found = (cast for (place, ring), cast in self.ballots.items() if place == segment and len(ring) == len(spoken))
        return len(spoken) < FEWEST or any(spoken == cast.keys() for cast in found)

    @property
    def is_checked(self) -> bool:
        """Whether every drawn verifier of every segment has spoken."""
        if self.revealed is None or len(self.checks) != self.segments:
            return False
        return not any(self.undecided(segment) for segment in self.checks)
