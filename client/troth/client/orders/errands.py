"""What is begun and not waited for, and what failed and rests for a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from troth.client.tabs.errors import StoreUnusable

LONGEST_BACKOFF = 60.0
FORGOTTEN_SECONDS = 600.0
"""After which it is forgotten that something failed which nobody tries any more."""
_log = logging.getLogger(__name__)


class Errands:
    """Work under names, each piece in a task of its own.

    None waits for another: a scheduler that answers slowly, or says one word every few seconds, holds up no summons and
    no objection, and a chain that is slow to take one of these holds up no other. What fails, foreseen or not, is said,
    and is begun again by whoever looks what is due.
    """

    def __init__(self) -> None:
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._unusable: StoreUnusable | None = None

    def begin(self, name: bytes, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin it, unless one of this name still runs."""
        if name not in self._running:
            task = self._running[name] = asyncio.create_task(self._run(what, work), name=what)
            task.add_done_callback(lambda _: self._running.pop(name, None))

    def runs(self, name: bytes) -> bool:
        """Whether one of this name still runs."""
        return name in self._running

    def count(self, prefix: bytes) -> int:
        """How many run under names that begin so."""
        return sum(name.startswith(prefix) for name in self._running)

    async def ended(self) -> None:
        """Wait until none runs; raises StoreUnusable where one could not write down what it did."""
        while self._running:
            await asyncio.wait(self._running.values())
        unusable, self._unusable = self._unusable, None
        if unusable is not None:
            raise unusable

    async def close(self) -> None:
        """Break all of them off."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a message may hold a prompt
            if isinstance(error, StoreUnusable):
                self._unusable = error
            _log.warning("%s is looked after again later: %s", what, type(error).__name__)


class Backoff:
    """What failed and is tried again later, longer after each time in a row; forgotten where nobody tries it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._put_off: dict[bytes, tuple[int, float]] = {}

    def is_time(self, what: bytes) -> bool:
        """Whether it may be tried now."""
        _, until = self._put_off.get(what, (0, 0.0))
        return self._clock() >= until

    def put_off(self, what: bytes) -> None:
        """It failed, or is to rest."""
        tries = self._put_off.get(what, (0, 0.0))[0] + 1
        self._put_off[what] = tries, self._clock() + min(2.0 ** min(tries, 6), LONGEST_BACKOFF)

    def succeeded(self, what: bytes) -> None:
        """It went well: the next failure is the first one again."""
        self._put_off.pop(what, None)

    def forget(self) -> None:
        """Let go of what nobody has tried for a while."""
        oldest = self._clock() - FORGOTTEN_SECONDS
        self._put_off = {what: kept for what, kept in self._put_off.items() if kept[1] > oldest}
