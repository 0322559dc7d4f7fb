"""The line of requests for which all places are taken: who came first is first, as long as its reader is there."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from troth.client.gateway.completion import Completion
from troth.client.gateway.errors import TooMany

LINE_SECONDS = 300.0
"""How long a request waits for a place; programs wait longer for an answer, most of them ten minutes."""
MOST_IN_LINE = 256
LOOK_SECONDS = 0.1
READER_SECONDS = 1.0
"""How often it is looked whether a reader is still there."""


class WaitingLine:
    """Requests that wait for a place."""

    def __init__(self, seconds: float = LINE_SECONDS, most: int = MOST_IN_LINE) -> None:
        self._seconds = seconds
        self._most = most
        self._waiting: deque[object] = deque()

    async def started(
        self,
        start: Callable[[], Awaitable[Completion]],
        has_left: Callable[[], Awaitable[bool]],
        is_closing: Callable[[], bool],
    ) -> Completion | None:
        """What ``start`` gives, once it finds a place; None where the reader has left, and nothing was ordered.

        Raises what ``start`` raises; TooMany where a place takes too long, or the line is full.
        """
        if not self._waiting:
            try:
                return await start()
            except TooMany:
                if not self._seconds:
                    raise
        if len(self._waiting) >= self._most:
            raise TooMany("All places are taken, and the line is full", f"{self._most} requests wait")
        mine = object()
        self._waiting.append(mine)
        try:
            return await self._in_turn(mine, start, has_left, is_closing)
        finally:
            self._waiting.remove(mine)

    async def _in_turn(
        self,
        mine: object,
        start: Callable[[], Awaitable[Completion]],
        has_left: Callable[[], Awaitable[bool]],
        is_closing: Callable[[], bool],
    ) -> Completion | None:
        looked = began = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now >= looked + READER_SECONDS:
                looked = now
                if await has_left():
                    return None
            if self._waiting[0] is mine or is_closing():
                try:
                    return await start()
                except TooMany:
                    if now >= began + self._seconds:
                        raise
            elif now >= began + self._seconds:
                raise TooMany("All places are taken", f"{len(self._waiting)} requests wait")
