"""What a client sees of its order while it runs: one JSON object per line. Nobody waits for who stops reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

Line = dict[str, Any]


class Lines:
    """Lines so far and to come; any number of readers may follow, each from the first line on."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._ended = False
        self._changed = asyncio.Event()

    def send(self, kind: str, **fields: object) -> None:
        """One more line."""
        self._lines.append({"type": kind, **fields})
        self._wake()

    def end(self) -> None:
        """Nothing follows."""
        self._ended = True
        self._wake()

    async def follow(self) -> AsyncIterator[tuple[list[Line], bool]]:
        """Every line until the end, those together that are there together, and whether they are the last ones."""
        place = 0
        while True:
            fresh, ended = self._lines[place:], self._ended
            place += len(fresh)
            if fresh or ended:
                yield fresh, ended
            if ended:
                return
            if place == len(self._lines) and not self._ended:
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
