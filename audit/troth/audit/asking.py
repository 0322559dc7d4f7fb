"""Many questions to one chain node, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

SPAN = 2_000
"""Blocks asked for at once; public nodes often refuse more."""

CONCURRENCY = 16
"""Requests under way at once."""

Item = TypeVar("Item")

Answer = TypeVar("Answer")


async def each(items: Collection[Item], ask: Callable[[Item], Awaitable[Answer]]) -> list[Answer]:
    """Answers in the order of ``items``, a bounded number of questions at a time."""
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(item: Item) -> Answer:
        async with gate:
            return await ask(item)

    asked = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*asked)
    finally:
        for question in asked:
            question.cancel()
