"""Rows of the requests that vLLM is working on, put together as they arrive."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.vllm.row_frames import Piece
from troth.node.errors import EngineError


class _Arriving:
    """Rows of one request; `first` is the position that it was computed from, None until its first row.

    Rows stay in the pieces that they came in: one array for all of them is copied again and again as it grows.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.end = 0
        self.failure: Exception | None = None
        self.changed = asyncio.Event()
        self._starts: list[int] = []
        self._pieces: list[NDArray[Any]] = []

    def add(self, start: int, rows: NDArray[Any]) -> None:
        if self.first is None or start < self.first:
            # A request that was put aside for want of memory begins again, perhaps with fewer cached positions.
            self.first, self.end, self._starts, self._pieces = start, start, [], []
        if start > self.end:
            raise EngineError("rows of a request are missing", (self.end, start), "The engine is started anew.")
        known = self.end - start
        if known < len(rows):
            # What comes again is the same: rows depend on the text alone.
            self._starts.append(self.end)
            self._pieces.append(rows[known:] if known else rows)
            self.end = start + len(rows)
        self.changed.set()

    def rows(self, start: int, end: int) -> NDArray[Any]:
        """Rows [start, end), which are all here; nobody may change them."""
        found = self.pieces(start, end)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def pieces(self, start: int, end: int) -> list[NDArray[Any]]:
        """The same as they lie here."""
        at = bisect_right(self._starts, start) - 1
        found = [self._pieces[at][start - self._starts[at] : end - self._starts[at]]]
        while (reached := self._starts[at] + len(self._pieces[at])) < end:
            at += 1
            found.append(self._pieces[at][: end - reached])
        return found


class RowBoard:
    """One entry for each request between `expect` and `drop`; rows of other requests are dropped as they come."""

    def __init__(self) -> None:
        self._requests: dict[str, _Arriving] = {}
        self._failure: Exception | None = None

    def expect(self, request: str) -> None:
        """Rows of this request are wanted."""
        self._requests[request] = _Arriving()

    def drop(self, request: str) -> None:
        """Rows of this request are not wanted any more; whoever waits for some gets an EngineError."""
        ended = EngineError("the request ended before its rows came", request, "Repeat it or ask another node.")
        self.fail_one(request, ended)
        self._requests.pop(request, None)

    def add(self, pieces: Sequence[Piece]) -> None:
        """Sort a frame's rows to their requests. Raises EngineError where rows are missing."""
        for request, start, rows in pieces:
            if (arriving := self._requests.get(request)) is not None:
                arriving.add(start, rows)

    def fail(self, error: Exception) -> None:
        """No more rows will come: everybody who waits is told."""
        self._failure = error
        for request in self._requests:
            self.fail_one(request, error)

    def fail_one(self, request: str, error: Exception) -> None:
        """No more rows of this request will come."""
        if (arriving := self._requests.get(request)) is not None:
            arriving.failure = error
            arriving.changed.set()

    def end(self, request: str) -> int:
        """The position up to which rows of a request have come; 0 for one that nobody expects."""
        arriving = self._requests.get(request)
        return 0 if arriving is None else arriving.end

    async def first(self, request: str) -> int:
        """The first position that the engine computed; those before came from its cache."""
        arriving = self._requests[request]
        while arriving.first is None:
            await self._change(arriving)
        return arriving.first

    async def rows(self, request: str, start: int, end: int) -> NDArray[Any]:
        """Rows of positions [start, end), once they are all there; `start` was computed by this request."""
        arriving = self._requests[request]
        while arriving.first is None or arriving.end < end:
            await self._change(arriving)
        if start < arriving.first:
            raise EngineError("a position came from the cache", (start, arriving.first), "Ask for later ones.")
        return arriving.rows(start, end)

    def here(self, request: str, start: int, end: int) -> NDArray[Any] | None:
        """The same without waiting; None where some are not here yet, or came from the cache."""
        arriving = self._requests[request]
        if arriving.first is None or start < arriving.first or arriving.end < end:
            return None
        return arriving.rows(start, end)

    def pieces(self, request: str, start: int, end: int) -> list[NDArray[Any]]:
        """Rows [start, end), which have been waited for, one piece below the other."""
        return self._requests[request].pieces(start, end)

    async def _change(self, arriving: _Arriving) -> None:
        if (failure := arriving.failure or self._failure) is not None:
            raise failure
        arriving.changed.clear()
        await arriving.changed.wait()
