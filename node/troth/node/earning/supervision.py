"""A long-lived task that goes on after any error, and says when it last did its work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from troth.protocol.errors import TrothError

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two attempts after many failures."""


class Supervised:
    """Calls ``step`` again and again, ``interval`` seconds apart, until it is cancelled."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[None]],
        *,
        interval: float = 2.0,
        stale_after: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._step = step
        self._interval = interval
        self._stale_after = stale_after
        self._clock = clock
        self._done_at = clock()
        self.failure = ""

    @property
    def age(self) -> float:
        """Seconds since the last step that succeeded."""
        return self._clock() - self._done_at

    @property
    def reason(self) -> str:
        """Why this is not ready, for /readyz; empty while it does its work."""
        if self.age <= self._stale_after:
            return ""
        return f"{self.name} was last done {self.age:.0f} s ago" + (f": {self.failure}" if self.failure else "")

    async def run(self) -> None:
        """Until cancelled. A failure is logged once, and tried again after a pause that grows."""
        pause = self._interval
        while True:
            try:
                await self._step()
            except Exception as error:
                if str(error) != self.failure:
                    # An error of ours says all in its words, such as that the chain is away.
                    trace = not isinstance(error, TrothError)
                    log.error("%s failed and is tried again: %s", self.name, error, exc_info=trace)
                self.failure = str(error) or type(error).__name__
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self.failure, self._done_at, pause = "", self._clock(), self._interval
            await asyncio.sleep(pause)
