"""Whom a node reports to and measures the way to: who is bonded on chain, with endpoint and TLS key as registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from troth.protocol.market.state import Party, State
from troth.protocol.market.types import PotKind, Role
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32
from troth.transport.tunnel_client import Lender


@dataclass(frozen=True, slots=True)
class OperatorContact:
    """Where an operator is reached."""

    operator: Address
    endpoint: str
    tls_key_hash: Hash32


class Contacts(Protocol):
    """One chain, as it is now."""

    def schedulers(self) -> Sequence[OperatorContact]:
        """Those that may be reported to, in the order of their registration."""

    def nodes(self, names: Iterable[str]) -> Sequence[OperatorContact]:
        """The registered nodes among these operators."""


class MarketContacts:
    """See ``Contacts``; ``state`` gives what was folded of a deployment's events."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def schedulers(self) -> Sequence[OperatorContact]:
        """Those whose stake is whole: who has lost it takes no orders."""
        state = self._state()
        if state.deployed is None:
            return ()
        least = parameters_of(state).scheduler_stake
        found = [
            party
            for party in state.parties.values()
            if party.role is Role.SCHEDULER
            and not party.exit_block
            and state.pot(PotKind.STAKE, party.operator) >= least
        ]
        found.sort(key=lambda party: (party.registered.block, party.operator))
        return [_contact(party) for party in found]

    def nodes(self, names: Iterable[str]) -> Sequence[OperatorContact]:
        """The registered nodes among these operators."""
        parties = self._state().parties
        found = (parties.get(Address(name)) for name in sorted(set(names)))
        return [_contact(party) for party in found if party is not None and party.role is Role.NODE]


def lender_of(state: State, scheduler: Address) -> Lender | None:
    """The scheduler that lends a node its endpoint; None where it is registered no more."""
    party = state.parties.get(scheduler)
    if party is None or party.role is not Role.SCHEDULER:
        return None
    return Lender(party.operator, party.endpoint, party.tls_key_hash)


def _contact(party: Party) -> OperatorContact:
    return OperatorContact(party.operator, party.endpoint, party.tls_key_hash)
