"""What gateways need to know of an order, whichever way it is paid."""

from __future__ import annotations

from typing import Protocol

from troth.client.gateway.errors import GatewayRefusal
from troth.client.updates import Finished, Text, Verdict
from troth.protocol.types import Hash32

Told = Text | Finished | Verdict | GatewayRefusal
"""What a completion is told of one of its orders."""


class Ordered(Protocol):
    """One order of a completion: its id, and what it costs at most."""

    @property
    def task_id(self) -> Hash32:
        """Names it in headers and receipts."""

    @property
    def fee(self) -> int:
        """In the smallest unit."""
