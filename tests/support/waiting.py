"""Waiting for what must come, on machines of any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from troth.client.home import Home
from troth.client.orders.journal import OrderJournal
from troth.client.tabs.store import opened

SECONDS = 120.0
"""More than a busy machine takes for anything that is awaited here."""


async def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until `condition()` is true; fails after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the awaited condition did not come true"
        await asyncio.sleep(0.02)


def leases_end(home: Path) -> None:
    """As if the half minute were over in which nobody takes over what a killed client had in hand."""
    with opened(Home(home).tabs) as store:
        journal = OrderJournal(store)
        for entry in journal.all():
            journal.release(entry.identifier)
