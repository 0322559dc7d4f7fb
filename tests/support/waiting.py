"""Waiting for what must come, on machines of any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SECONDS = 120.0
"""More than a busy machine takes for anything that is awaited here."""


async def eventually(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until `condition()` is true; fails after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the awaited condition did not come true"
        await asyncio.sleep(0.02)
