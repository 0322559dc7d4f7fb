"""Work that goes over many things on the event loop, and lets it do everything else meanwhile."""

from __future__ import annotations

import asyncio
import time

ROUND_SECONDS = 0.002
"""How long the loop may be at one round of all that is ready, before those who can wait do."""


class Rounds:
    """How long the loop has been at its present round, as far as those know who ask."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = 0.0

    async def give_way(self) -> None:
        """For who is one of many: go on in the next round, if the loop has looked for no messages for a while."""
        if self._is_long():
            await asyncio.sleep(0)

    def _is_long(self) -> bool:
        now, loop = time.monotonic(), asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._began = loop, now
            loop.call_soon(self._end)
        return now - self._began > ROUND_SECONDS

    def _end(self) -> None:
        self._loop = None


rounds = Rounds()
"""Of this process' loop."""
