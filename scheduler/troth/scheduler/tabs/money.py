"""What is asked of a scheduler's books to collect its money: a running one has it, and so has a command."""

from __future__ import annotations

from typing import Protocol

from troth.protocol.market.state import State
from troth.protocol.market.types import Contracts, Parameters
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.tabs.client_tabs import ClientTabs


class FollowedChain(Protocol):
    """The deployment as it was followed."""

    @property
    def state(self) -> State:
        """Up to the followed block."""

    @property
    def block(self) -> int:
        """That block."""

    @property
    def contracts(self) -> Contracts:
        """Where its parts are."""

    @property
    def parameters(self) -> Parameters:
        """The deployment's."""


class ClientBooks(Protocol):
    """Tabs of clients, and the orders behind their numbers."""

    @property
    def ledger(self) -> FollowedChain:
        """The chain."""

    @property
    def client_tabs(self) -> ClientTabs:
        """The tabs."""

    @property
    def store(self) -> OrderStore:
        """The orders."""
