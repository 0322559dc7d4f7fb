"""Double-entry book-keeping over the money events: each amount must explain its balance, each transaction must balance.

Sums of escrow, stake, credit, locked fees and bonds change in three ways only: wei comes in, wei goes out, or it moves
inside the contract. The last must cancel out within one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from troth.protocol.contract_types import Role
from troth.protocol.events import (
    BondReturned,
    Claimed,
    Credited,
    EscrowDeposited,
    EscrowReleased,
    EscrowWithdrawn,
    Event,
    NodeRegistered,
    ReviewExpired,
    ReviewSettled,
    SchedulerRegistered,
    Slashed,
    StakeAdded,
    TaskAborted,
    TaskDisputed,
    TaskExpired,
    TaskOpened,
    TaskSettled,
    Withdrawn,
)
from troth.protocol.fold_reviews import bond_is_escrow
from troth.protocol.state import State
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Ledger:
    """Wei that came in, wei that left, and what a transaction has taken from one account and not yet given another."""

    paid_in: int = 0
    paid_out: int = 0
    in_transit: int = 0

    @property
    def held(self) -> int:
        """Wei that the contract must hold."""
        return self.paid_in - self.paid_out

    def after(self, event: Event, state: State) -> Ledger:
        """The ledger after ``event``, which happened in ``state``."""
        match event:
            case NodeRegistered() | SchedulerRegistered():
                return replace(self, paid_in=self.paid_in + event.stake)
            case StakeAdded() | EscrowDeposited():
                return replace(self, paid_in=self.paid_in + event.amount)
            case Claimed() | EscrowWithdrawn():
                return replace(self, paid_out=self.paid_out + event.amount)
            case Withdrawn():
                return replace(self, paid_out=self.paid_out + event.stake + event.credit)
            case Slashed():
                return replace(self, in_transit=self.in_transit + event.amount)
            case Credited() | EscrowReleased() | BondReturned():
                return replace(self, in_transit=self.in_transit - event.amount)
            case TaskSettled() | TaskAborted() | TaskExpired():
                fee = state.tasks[event.task_id].task.terms.fee
                return replace(self, in_transit=self.in_transit + fee)
            case ReviewSettled() | ReviewExpired():
                bond = state.reviews[event.review_id].review.terms.fee
                return replace(self, in_transit=self.in_transit + bond)
            case _:
                return self


def broken_balance(event: Event, before: State) -> str | None:
    """What is wrong with the balance that ``event`` reports, given the state before it; None if nothing is."""
    balances = _balances(event, before)
    if balances is None or balances[1] == balances[2]:
        return None
    name, expected, reported = balances
    return f"{type(event).__name__} reports a {name} of {reported} wei where {expected} wei must remain"


def _balances(event: Event, before: State) -> tuple[str, int, int] | None:
    """Name, expected and reported balance."""
    match event:
        case NodeRegistered() | SchedulerRegistered():
            return "stake", before.account(event.operator).stake + event.stake, event.stake
        case StakeAdded():
            return "stake", before.account(event.operator).stake + event.amount, event.stake
        case Slashed():
            return "stake", before.account(event.operator).stake - event.amount, event.stake
        case Credited():
            return "credit", before.account(event.account).credit + event.amount, event.credit
        case Claimed():
            return "credit", before.account(event.operator).credit, event.amount
        case Withdrawn():
            account = before.account(event.operator)
            return "sum", account.stake + account.credit, event.stake + event.credit
        case EscrowDeposited() | EscrowReleased():
            return "free escrow", before.escrow_of(event.client) + event.amount, event.balance
        case EscrowWithdrawn():
            return "free escrow", before.escrow_of(event.client) - event.amount, event.balance
        case TaskOpened():
            return "free escrow", before.escrow_of(event.client) - event.fee, event.escrow
        case TaskDisputed():
            terms = before.tasks[event.task_id].task.terms
            name, held = _bond_account(before, terms.execution_class, event.disputer, event.bond)
            # Nobody bonds for an undecided segment, and the contract reports a balance of 0.
            return name, held - event.bond if event.bond else 0, event.balance
        case BondReturned():
            terms = before.reviews[event.review_id].review.terms
            name, held = _bond_account(before, terms.execution_class, event.disputer, event.amount)
            return name, held + event.amount, event.balance
        case _:
            return None


def _bond_account(state: State, execution_class: Hash32, disputer: Address, bond: int) -> tuple[str, int]:
    """Name and balance of what a bond comes from, or goes to: a party that has left gets it as credit."""
    if bond_is_escrow(state, execution_class, bond):
        return "free escrow", state.escrow_of(disputer)
    account = state.account(disputer)
    return ("credit", account.credit) if account.role is Role.NONE and bond else ("stake", account.stake)
