"""Keeping one vLLM engine alive: what has died is told, and another one is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from troth.node.errors import EngineError, ModelError, NodeBusy

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between attempts to start: twice as long after each that failed or died young."""
GROWN_UP = 300.0
"""Seconds after which a death is no sign that the next engine dies too."""


class Mortal(Protocol):
    """What is kept alive: `core.Core`."""

    @property
    def dead(self) -> asyncio.Event:
        """Set once it has ended."""

    async def close(self) -> None:
        """Free what it held."""


Started = TypeVar("Started", bound=Mortal)


async def started_of_same(start: Callable[[], Awaitable[Started]], unchanged: Callable[[], object]) -> Started:
    """An engine that has read the files that were checked: as `unchanged` before it was started, and again after.

    Args:
        unchanged: looks at the files, reading some of them; returns what they are now and raises ModelError where they
            are others than those that were checked.

    Raises:
        EngineError: they are others, or were written, exchanged or linked meanwhile, even if they are back now; the
            engine is closed. Or it cannot be started.
    """
    before = await _looked(unchanged)
    engine = await start()
    try:
        if await _looked(unchanged) != before:
            what, remedy = (
                "files of the model were touched while the engine read them",
                "Leave them alone; it is retried.",
            )
            raise EngineError(what, None, remedy)
    except BaseException:
        await engine.close()
        raise
    return engine


async def _looked(unchanged: Callable[[], object]) -> object:
    try:
        return await asyncio.to_thread(unchanged)
    except ModelError as error:
        raise EngineError(f"the engine is not started: {error.what}", error.value, error.remedy) from error


class Supervisor:
    """Starts an engine when it is first asked for one, and again whenever it has died."""

    def __init__(self, start: Callable[[], Awaitable[Mortal]]) -> None:
        self._start = start
        self._current: Mortal | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.failure: str | None = None
        self.deaths = 0

    @property
    def living(self) -> Mortal | None:
        """The engine, if there is one now."""
        alive = self._current is not None and not self._current.dead.is_set()
        return self._current if alive else None

    async def current(self) -> Mortal:
        """The living engine; the first caller waits until it is up.

        Raises:
            EngineError: it cannot be started at all.
            NodeBusy: it has died and is being started again.
        """
        if self._keeper is None:
            async with self._starting:
                if self._keeper is None:
                    self._current = await self._start()
                    self._keeper = asyncio.create_task(self._keep())
        if (living := self.living) is None:
            raise NodeBusy("the engine has died and is being started again", None, "Retry in a minute or elsewhere.")
        return living

    async def close(self) -> None:
        """End the engine and start no other."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._current is not None:
            await self._current.close()
            self._current = None

    async def _keep(self) -> None:
        clock, pause = asyncio.get_running_loop().time, FIRST_PAUSE
        while self._current is not None:
            began = clock()
            await self._current.dead.wait()
            self.deaths += 1
            self.failure = f"the engine's process has ended ({self.deaths} times); it is being started again"
            log.error("%s", self.failure)
            dead, self._current = self._current, None
            await dead.close()
            pause = FIRST_PAUSE if clock() - began > GROWN_UP else pause
            self._current, pause = await self._revive(pause)
            self.failure = None
            log.warning("the engine serves again")

    async def _revive(self, pause: float) -> tuple[Mortal, float]:
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                return await self._start(), pause
            except EngineError as error:
                self.failure = f"the engine cannot be started again: {error}"
                log.error("%s", self.failure)
