"""Who pays and who is paid once a task is decided; see ``settlement`` for the rules of rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from troth.protocol.errors import InvalidSettlement
from troth.protocol.settlement import (
    LATE_PENALTY,
    PENALTY,
    REWARD,
    BondReturn,
    Credit,
    Movement,
    Outcome,
    Pot,
    Release,
    SegmentDecision,
    Slash,
    SlashReason,
    TaskDecision,
)


class MovementLedger:
    """Collects movements while stakes go down; every amount is positive."""

    def __init__(self, pot: Pot, stakes: Mapping[str, int]) -> None:
        self.pot = pot
        self.left = dict(stakes)
        self.movements: list[Movement] = []

    def slash(self, operator: str, units: int, reason: SlashReason) -> int:
        """Takes up to ``units`` from the operator's stake and returns the wei taken."""
        return self.slash_wei(operator, units * self.pot.unit, reason)

    def slash_wei(self, operator: str, owed: int, reason: SlashReason) -> int:
        """Takes up to ``owed`` wei from the operator's stake and returns the wei taken."""
        amount = min(self.left.get(operator, 0), owed)
        if amount:
            self.left[operator] -= amount
            self.movements.append(Slash(operator, amount, reason))
        return amount

    def credit(self, account: str, amount: int) -> None:
        """Gives ``amount`` wei to an account."""
        if amount:
            self.movements.append(Credit(account, amount))

    def release(self, amount: int, client: str | None = None) -> None:
        """Gives ``amount`` wei to a client's escrow, by default to that of the pot's client."""
        if amount:
            self.movements.append(Release(client or self.pot.client, amount))

    def return_bond(self) -> None:
        """Gives a review's bond, which is its pot's fee, back to who disputed."""
        if self.pot.fee:
            self.movements.append(BondReturn(self.pot.client, self.pot.fee))


def settle_task(decision: TaskDecision, pot: Pot, stakes: Mapping[str, int]) -> tuple[Movement, ...]:
    """The movements of a decided task: per segment slashes, then pay; the scheduler and the client come last.

    ``stakes`` are the parties' stakes in wei; one that has left has none. Raises InvalidSettlement if the fee cannot
    pay for an accepted task.
    """
    ledger = MovementLedger(pot, stakes)
    spent = 0
    for segment in decision.segments:
        if segment.outcome is Outcome.REJECTED:
            _compensate(ledger, segment)
        _slash_verifiers(ledger, segment, decision.outcome)
        if decision.outcome is Outcome.ACCEPTED:
            spent += _reward(ledger, segment)
    if decision.outcome is Outcome.ACCEPTED:
        ledger.credit(pot.scheduler, REWARD * pot.unit)
        spent += REWARD * pot.unit
    if spent > pot.fee:
        raise InvalidSettlement("The fee does not pay for the task", pot.fee, f"The parties are owed {spent} wei.")
    ledger.release(pot.fee - spent)
    return tuple(ledger.movements)


def settle_late(pot: Pot, segments: int, committed: Sequence[str], stakes: Mapping[str, int]) -> tuple[Movement, ...]:
    """The movements when the scheduler missed its own deadline.

    The client gets the fee back. The slash goes in equal parts to the parties that had ``committed`` (an operator once
    for each commitment), rounded down, the rest to the reserve.
    """
    ledger = MovementLedger(pot, stakes)
    taken = ledger.slash(pot.scheduler, LATE_PENALTY * segments, SlashReason.SCHEDULER_LATE)
    share = taken // len(committed) if committed else 0
    for operator in committed:
        ledger.credit(operator, share)
    ledger.credit(pot.reserve, taken - share * len(committed))
    ledger.release(pot.fee)
    return tuple(ledger.movements)


def _compensate(ledger: MovementLedger, segment: SegmentDecision) -> None:
    """A rejected inferencer pays cluster verifiers their reward and the reserve the penalty, or a part of each."""
    owed = PENALTY + REWARD * len(segment.cluster)
    taken = ledger.slash(segment.inferencer, owed, SlashReason.REJECTED)
    share = taken * REWARD // owed
    for index in sorted(segment.cluster):
        ledger.credit(segment.verifiers[index], share)
    ledger.credit(ledger.pot.reserve, taken - share * len(segment.cluster))


def _slash_verifiers(ledger: MovementLedger, segment: SegmentDecision, outcome: Outcome) -> None:
    """Silence always costs; dissent does where there is a cluster to dissent from and the task is decided."""
    dissent_counts = bool(segment.cluster) and outcome is not Outcome.INDETERMINATE
    for index, operator in enumerate(segment.verifiers):
        if index in segment.unrevealed:
            reason = SlashReason.UNREVEALED
        elif dissent_counts and index in segment.dissenting:
            reason = SlashReason.DISAGREED
        else:
            continue
        ledger.credit(ledger.pot.reserve, ledger.slash(operator, PENALTY, reason))


def _reward(ledger: MovementLedger, segment: SegmentDecision) -> int:
    """Pays inferencer and cluster from the fee; returns the wei spent."""
    paid = [segment.inferencer, *(segment.verifiers[index] for index in sorted(segment.cluster))]
    for operator in paid:
        ledger.credit(operator, REWARD * ledger.pot.unit)
    return len(paid) * REWARD * ledger.pot.unit
