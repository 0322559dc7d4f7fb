"""What a client sees of its task while it runs: one JSON object per line, in the order of the protocol.

Tokens wait until the fee is locked: before that nobody would be paid for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

Line = dict[str, Any]


class ClientStream:
    """A queue of lines with a gate for tokens. It never blocks the task; who stops reading misses lines, no more."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._held: list[Line] | None = []

    def send(self, kind: str, **fields: object) -> None:
        """A line that waits for nothing."""
        self._lines.put_nowait({"type": kind, **fields})

    def send_when_opened(self, kind: str, **fields: object) -> None:
        """A line that waits for `open_gate`."""
        line = {"type": kind, **fields}
        if self._held is None:
            self._lines.put_nowait(line)
        else:
            self._held.append(line)

    def open_gate(self) -> None:
        """The fee is locked: let out what waits, in order."""
        held, self._held = self._held or [], None
        for line in held:
            self._lines.put_nowait(line)

    def end(self) -> None:
        """Nothing follows."""
        self._lines.put_nowait(None)

    async def lines(self) -> AsyncIterator[Line]:
        """Every line until the end."""
        while (line := await self._lines.get()) is not None:
            yield line
