"""What a gateway needs to know of an order, and costs as JSON: ether as a number, exact wei as text."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from troth.client.gateway.errors import GatewayRefusal
from troth.client.orders.updates import FinishedUpdate, SettledUpdate, TextUpdate
from troth.protocol.types import Hash32

Told = TextUpdate | FinishedUpdate | SettledUpdate | GatewayRefusal
"""What a completion is told of one of its orders."""
WEI = Decimal(10) ** 18


class Ordered(Protocol):
    """One order of a completion: its id, and what it costs at most."""

    @property
    def task_id(self) -> Hash32:
        """Names it in headers and receipts."""

    @property
    def fee(self) -> int:
        """In the smallest unit."""


def ether(wei: int) -> float:
    """Ether as a JSON number; exact only up to a double's 15 digits, which is why wei goes beside it."""
    return float(Decimal(wei) / WEI)


def whole(amount: int, decimals: int) -> float:
    """An amount of any asset in whole ones, as ``ether``."""
    return float(Decimal(amount) / Decimal(10) ** decimals)
