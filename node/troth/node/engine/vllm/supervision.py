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
        self._first: asyncio.Task[None] | None = None
        self.failure: str | None = None
        self.deaths = 0

    @property
    def living(self) -> Mortal | None:
        """The engine, if there is one now."""
        alive = self._current is not None and not self._current.dead.is_set()
        return self._current if alive else None

    async def current(self) -> Mortal:
        """The living engine; whoever comes first waits until it is up. It goes on starting if they all go away.

        Raises:
            EngineError: it cannot be started at all.
            NodeBusy: it has died and is being started again.
        """
        if self._keeper is None:
            if self._first is None:
                self._first = asyncio.create_task(self._begin())
            await asyncio.shield(self._first)
        if (living := self.living) is None:
            raise NodeBusy("the engine has died and is being started again", None, "Retry in a minute or elsewhere.")
        return living

    async def close(self) -> None:
        """End the engine and start no other."""
        under_way = [one for one in (self._first, self._keeper) if one is not None]
        for one in under_way:
            one.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._current is not None:
            await self._current.close()
            self._current = None

    async def _begin(self) -> None:
        try:
            self._current = await self._start()
            self._keeper = asyncio.create_task(self._keep())
        finally:
            # Whoever asks after a start that failed has it tried again.
            self._first = None

    async def _keep(self) -> None:
        clock, pause = asyncio.get_running_loop().time, FIRST_PAUSE
        while self._current is not None:
            began = clock()
            await self._current.dead.wait()
            self.deaths += 1
            self.failure = f"the engine's process has ended ({self.deaths} times); it is being started again"
            log.error("%s", self.failure)
            dead, self._current = self._current, None
            try:
                await dead.close()
            except Exception:
                # What is left of a dead engine keeps nobody from starting another one.
                log.exception("the engine that has ended was not closed")
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
            except Exception as error:
                # Whatever it is: nobody else would ever start the engine again.
                self.failure = f"the engine cannot be started again: {type(error).__name__}: {error}"
                log.exception("the engine cannot be started again")
