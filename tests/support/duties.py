"""The pauses of a duty, of which none is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from troth.chain.duty import Duty


async def pauses_of(work: Awaitable[None], most: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """So many pauses of a running duty, in seconds; the last one ends it."""
    seen: list[float] = []

    async def rest(_duty: Duty, seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == most:
            raise asyncio.CancelledError

    monkeypatch.setattr(Duty, "_rest", rest)
    with pytest.raises(asyncio.CancelledError):
        await work
    return seen
