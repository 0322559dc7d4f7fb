"""Who pays for a review, and who is paid (VeriLLM, Appendix E); the contract's ReviewPayment does the same.

The client's fee is out of it. Who turns out to be wrong makes good what the first outcome took, rewards who was right,
and pays the reviewers. A ``Pot`` of a review holds the bond as its fee and who disputed as its client, so that

    bond + sum of slashes = sum of credits + releases + bond returned.

Slashing rounds up; where it brings too little, all dues shrink in proportion, rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from troth.protocol.contract_types import Settled
from troth.protocol.payout import MovementLedger
from troth.protocol.review import in_the_right
from troth.protocol.settlement import (
    BOND,
    LATE_PENALTY,
    PENALTY,
    REWARD,
    Movement,
    Outcome,
    Pot,
    SegmentDecision,
    SlashReason,
)
from troth.protocol.task import Task
from troth.protocol.types import ZERO_HASH


@dataclass(frozen=True, slots=True)
class FirstRound:
    """The disputed decision: the task as it was when it was settled, how it was decided, and the segment."""

    task: Task
    settled: Settled
    segment: int

    @property
    def outcome(self) -> Outcome:
        """What was decided about the segment."""
        return Outcome(self.settled.outcomes[self.segment])

    @property
    def parties(self) -> tuple[str, ...]:
        """The inferencer, then the verifiers."""
        return (self.task.parties_of(self.segment)[0], *self.task.verifiers_of(self.segment))

    def right(self, outcome: Outcome) -> frozenset[int]:
        """Places among ``parties`` of the verifiers who are right if ``outcome`` is the truth."""
        return frozenset(1 + verifier for verifier in in_the_right(self.settled, self.segment, outcome))

    def losers(self, outcome: Outcome, *, shown: bool = True) -> tuple[int, ...]:
        """Places of those who were wrong or silent if ``outcome`` is the truth.

        An inferencer that shows nothing the second time proves nobody else wrong, and loses alone.
        """
        if not shown:
            return (0,)
        posts, right = self.task.posts_of(self.segment), self.right(outcome)
        wrong = [place for place in range(1, len(posts)) if posts[place] != ZERO_HASH and place not in right]
        return (0, *wrong) if outcome is Outcome.REJECTED else tuple(wrong)

    def spent(self, unit: int) -> int:
        """Wei that the task cost its client, had it been accepted."""
        clusters = self.settled.clusters
        return unit * REWARD * (1 + len(clusters) + sum(cluster.bit_count() for cluster in clusters))


@dataclass(slots=True)
class _Dues:
    """What is owed to whom, in wei, in the order in which it is paid."""

    owed: list[tuple[str, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(amount for _, amount in self.owed)

    def settle(self, ledger: MovementLedger, pool: int) -> int:
        """Pays in full, or everybody the same share of ``pool``; returns what is left of it."""
        left, total = pool, self.total
        for payee, amount in self.owed:
            paid = amount if pool >= total else amount * pool // total
            ledger.credit(payee, paid)
            left -= paid
        return left


def is_outsider(pot: Pot) -> bool:
    """Whether who disputed is no party that profits, and so paid for the reviewers in advance."""
    return pot.fee > BOND * pot.unit


def settle_review(
    decision: SegmentDecision, first: FirstRound, pot: Pot, stakes: Mapping[str, int], *, refund: bool
) -> tuple[Movement, ...]:
    """The movements of a decided review, in the contract's order.

    ``decision`` has the reviewers as its verifiers. ``stakes`` are what can be taken, in wei, of reviewers, of the
    first parties and of who disputed. ``refund`` if the task was accepted until now and no longer is.
    """
    ledger = MovementLedger(pot, stakes)
    reserved = _slash_reviewers(ledger, decision)
    if decision.outcome is not Outcome.INDETERMINATE and decision.outcome is first.outcome:
        reserved += _charge_disputer(ledger, decision)
    else:
        ledger.return_bond()
        if decision.outcome is not Outcome.INDETERMINATE:
            reserved += _overturn(ledger, decision, first, refund=refund)
        elif len(decision.cluster | decision.dissenting | decision.unrevealed) < len(decision.verifiers):
            # Whoever chooses which commitments are posted could leave out those that would decide.
            _pay_wronged(ledger, _fine_scheduler(ledger, len(first.parties) - 1))
    ledger.credit(pot.reserve, reserved)
    return tuple(ledger.movements)


def close_review(
    pot: Pot, committed: Sequence[str], stakes: Mapping[str, int], *, verifiers: int, drawable: bool = True
) -> tuple[Movement, ...]:
    """The movements when the scheduler left a review unfinished.

    ``committed``: whose posts wait for a sample, an operator once for each; empty if the reviewers are not complete.
    Not ``drawable`` if there were too few reviewers to draw, which is nobody's fault. ``verifiers`` of a segment count
    in the fine: it is all that a wrong rejection costs an inferencer, and the penalty of a late scheduler.
    """
    ledger = MovementLedger(pot, stakes)
    if drawable:
        taken = _fine_scheduler(ledger, verifiers)
        share = taken // len(committed) if committed else 0
        for operator in committed:
            ledger.credit(operator, share)
        if committed:
            ledger.credit(pot.reserve, taken - share * len(committed))
        else:
            _pay_wronged(ledger, taken)
    ledger.return_bond()
    return tuple(ledger.movements)


def _fine_scheduler(ledger: MovementLedger, verifiers: int) -> int:
    return ledger.slash(ledger.pot.scheduler, LATE_PENALTY + PENALTY + REWARD * verifiers, SlashReason.SCHEDULER_LATE)


def _pay_wronged(ledger: MovementLedger, amount: int) -> None:
    """A party that disputed gets it. Anybody else may be the scheduler itself, which would end disputes for nothing."""
    pot = ledger.pot
    ledger.credit(pot.client if pot.fee and not is_outsider(pot) else pot.reserve, amount)


def _slash_reviewers(ledger: MovementLedger, decision: SegmentDecision) -> int:
    """Silence always costs; dissent does where there is a cluster to dissent from and the review is decided."""
    dissent_counts = bool(decision.cluster) and decision.outcome is not Outcome.INDETERMINATE
    taken = 0
    for index, operator in enumerate(decision.verifiers):
        if index in decision.unrevealed:
            taken += ledger.slash(operator, PENALTY, SlashReason.UNREVEALED)
        elif dissent_counts and index in decision.dissenting:
            taken += ledger.slash(operator, PENALTY, SlashReason.DISAGREED)
    return taken


def _charge_disputer(ledger: MovementLedger, decision: SegmentDecision) -> int:
    """The first outcome stands: who disputed it pays the reviewers and, out of the bond, the scheduler.

    An undecided segment was disputed by nobody; its first outcome cannot stand.
    """
    pot, price = ledger.pot, REWARD * len(decision.cluster)
    pool = pot.fee
    if is_outsider(pot):
        rest = pot.fee - (BOND + price) * pot.unit
        ledger.release(rest)
        pool -= rest
    else:
        pool += ledger.slash(pot.client, price, SlashReason.DISPUTE_LOST)
    return _dues_of_review(pot, decision).settle(ledger, pool)


def _overturn(ledger: MovementLedger, decision: SegmentDecision, first: FirstRound, *, refund: bool) -> int:
    """The first outcome falls: its losers make good what it took, and pay for the review."""
    pot = ledger.pot
    dues = _dues_of_review(pot, decision)
    dues.owed += _first_round_dues(first, decision.outcome, pot.unit)
    if is_outsider(pot):
        dues.owed.append((pot.client, REWARD * pot.unit))
    owed = first.spent(pot.unit) if refund else 0
    pool = _charge_losers(ledger, first, decision, owed + dues.total)
    refunded = min(pool, owed)
    ledger.release(refunded, first.task.terms.client)
    return dues.settle(ledger, pool - refunded)


def _dues_of_review(pot: Pot, decision: SegmentDecision) -> _Dues:
    members = [decision.verifiers[index] for index in sorted(decision.cluster)]
    return _Dues([(payee, REWARD * pot.unit) for payee in (pot.scheduler, *members)])


def _first_round_dues(first: FirstRound, outcome: Outcome, unit: int) -> list[tuple[str, int]]:
    """What the first outcome kept from those who were right: their rewards, and what they were slashed."""
    decided = first.outcome is not Outcome.INDETERMINATE
    reward = REWARD + PENALTY if decided else REWARD
    owed = [(first.parties[place], reward * unit) for place in sorted(first.right(outcome))]
    if outcome is Outcome.ACCEPTED:
        bounties = REWARD * first.settled.clusters[first.segment].bit_count() if decided else 0
        owed.insert(0, (first.parties[0], (reward + bounties) * unit))
    return owed


def _charge_losers(ledger: MovementLedger, first: FirstRound, decision: SegmentDecision, owed: int) -> int:
    """Takes the same from each, at least a reward and a penalty; returns what it brought."""
    losers = first.losers(decision.outcome, shown=decision.shown)
    if not losers:
        return 0
    share = max(-(-owed // len(losers)), (REWARD + PENALTY) * ledger.pot.unit)
    return sum(ledger.slash_wei(first.parties[place], share, SlashReason.OVERTURNED) for place in losers)
