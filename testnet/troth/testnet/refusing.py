"""`troth` with a scheduler that refuses checks: it answers and draws as any other, and then lets nobody verify.

One part is replaced, the answer to a client's secret; with it goes the duty to answer a summons on chain.
"""

from __future__ import annotations

from typing import NoReturn

from troth.protocol.types import Hash32
from troth.scheduler import assembly, duties
from troth.scheduler.errors import Busy
from troth.scheduler.orders.service import Orders

LATER = 3600
"""Seconds after which it says that it would have time."""


class RefusingOrders(Orders):
    """Serves orders, and refuses to have one checked."""

    async def show_secret(self, order_id: Hash32, secret: Hash32) -> NoReturn:
        """Have no time for it."""
        del order_id, secret
        raise Busy("This scheduler has no time for checks", LATER)


class SilentDuty:
    """Looks at no summons."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    async def look(self) -> None:
        """Do nothing."""

    async def abandon(self) -> None:
        """There is nothing to abandon."""


def main() -> None:
    """As `troth`, with the same arguments."""
    from troth.command.main import main as command

    assembly.Orders = RefusingOrders  # type: ignore[attr-defined]
    duties.SummonsDuty = SilentDuty  # type: ignore[attr-defined, assignment]
    command()
