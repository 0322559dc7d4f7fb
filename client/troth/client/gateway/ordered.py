"""What a gateway needs to know of an order, and its cost as a JSON number."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from troth.client.gateway.errors import GatewayRefusal
from troth.client.orders.updates import FinishedUpdate, SettledUpdate, TextUpdate
from troth.protocol.types import Hash32

Told = TextUpdate | FinishedUpdate | SettledUpdate | GatewayRefusal
"""What a completion is told of one of its orders."""


class Ordered(Protocol):
    """One order of a completion: its id, and what it costs at most."""

    @property
    def task_id(self) -> Hash32:
        """Names it in headers and receipts."""

    @property
    def fee(self) -> int:
        """In the smallest unit."""


def whole(amount: int, decimals: int) -> float:
    """An amount in whole ones of its asset; exact only up to a double's 15 digits, so units go beside it as text."""
    return float(Decimal(amount) / Decimal(10) ** decimals)
