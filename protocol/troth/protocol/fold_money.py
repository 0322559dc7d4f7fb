"""Money events into the state. Most carry the amount after the movement, which is taken over as it stands."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from troth.protocol.events import (
    Claimed,
    Credited,
    EscrowDeposited,
    EscrowReleased,
    EscrowWithdrawn,
    MoneyEvent,
    Slashed,
    StakeAdded,
    Withdrawn,
)
from troth.protocol.state import State


def apply_money(event: MoneyEvent, state: State) -> State:
    """The state after a movement of money."""
    match event:
        case StakeAdded() | Slashed():
            account = replace(state.account(event.operator), stake=event.stake)
            return replace(state, accounts=state.accounts.with_item(event.operator, account))
        case Credited():
            account = replace(state.account(event.account), credit=event.credit)
            return replace(state, accounts=state.accounts.with_item(event.account, account))
        case Claimed():
            account = replace(state.account(event.operator), credit=0)
            return replace(state, accounts=state.accounts.with_item(event.operator, account))
        case Withdrawn():
            return replace(state, accounts=state.accounts.without(event.operator))
        case EscrowDeposited() | EscrowWithdrawn() | EscrowReleased():
            return replace(state, escrow=state.escrow.with_item(event.client, event.balance))
        case _:
            assert_never(event)
