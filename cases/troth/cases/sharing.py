"""Rows that reviewers fetch piece by piece: read once while they are fetched, and not again for each piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from troth.protocol.types import Hash32

KEPT_SECONDS = 10.0
"""After the last piece that somebody asked for; rows of a long text may have half a gigabyte."""

ReadRows = Callable[[Hash32, int], Awaitable[bytes | None]]


class RowsInPieces:
    """The rows of one segment at a time: reviewers of a case ask for the same ones at the same time."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._place: tuple[Hash32, int] | None = None
        self._rows: bytes | None = None
        self._end: asyncio.TimerHandle | None = None

    async def of(self, order: Hash32, segment: int, read: ReadRows) -> bytes | None:
        """What ``read`` gives, or gave a moment ago; None is not kept."""
        async with self._reading:
            if self._rows is None or self._place != (order, segment):
                self._forget()
                self._place, self._rows = (order, segment), await read(order, segment)
            if self._end is not None:
                self._end.cancel()
            self._end = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)
            return self._rows

    def _forget(self) -> None:
        self._place = self._rows = None
