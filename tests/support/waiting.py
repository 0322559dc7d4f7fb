"""Waiting for what must come, on machines of any speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def seconds_waited() -> Iterator[Callable[[], float]]:
    """How long the loop had nothing to do so far: what somebody waits for on a machine that computes at once.

    A wait that ends late since others have the processor counts for as long as was asked for.
    """
    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    whole, waited = selector.select, 0.0

    def select(timeout: float | None = None) -> Any:
        nonlocal waited
        began = time.monotonic()
        ready = whole(timeout)
        waited += min(time.monotonic() - began, float("inf") if timeout is None else max(timeout, 0.0))
        return ready

    selector.select = select
    try:
        yield lambda: waited
    finally:
        del selector.select


def leases_end(home: Path) -> None:
    """As if the half minute were over in which nobody takes over what a killed client had in hand."""
    with opened(Home(home).tabs) as store:
        journal = OrderJournal(store)
        for entry in journal.all():
            journal.release(entry.identifier)
