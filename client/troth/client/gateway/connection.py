"""A session that stays open: when it fails a new one is made beside it, and the old one ends with its last user."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from troth.chain.duty import is_asked_to_end
from troth.chain.errors import ChainError
from troth.chain.waiting import slowness
from troth.client.errors import ClientError, OverlayFailed
from troth.client.gateway.errors import NotReady
from troth.transport.errors import CircuitFailed, OverlayError

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
PATIENCE_SECONDS = 5.0
"""How long a request waits for a session that is being made."""
_log = logging.getLogger(__name__)
_FAILURES = (ClientError, ChainError, OverlayError, OSError)


class Following(Protocol):
    """A session with its view of the chain."""

    @property
    def follower(self) -> Any:
        """It has ``failure``: the last error while the chain is away, else None."""


Kept = TypeVar("Kept", bound=Following)


class SharedSession(Generic[Kept]):
    """One session, open as long as anybody uses it."""

    def __init__(self, session: Kept) -> None:
        self.session = session
        self.retired = asyncio.Event()
        self.users = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @contextmanager
    def use(self) -> Iterator[Kept]:
        """The session stays open inside the block, even when a newer one has taken its place."""
        self.users += 1
        self.idle.clear()
        try:
            yield self.session
        finally:
            self.users -= 1
            if not self.users:
                self.idle.set()

    async def over(self) -> None:
        """Until it is retired and nobody uses it any more."""
        await self.retired.wait()
        await self.idle.wait()


class Connection(Generic[Kept]):
    """Use it with ``async with``; `lease` gives the session."""

    def __init__(self, factory: Callable[[], AbstractAsyncContextManager[Kept]]) -> None:
        self._factory = factory
        self._current: SharedSession[Kept] | None = None
        self._ready = asyncio.Event()
        self._wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Connection[Kept]:
        self._wanted.set()
        self._keeper = asyncio.create_task(self._keep(), name="gateway connection")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = [*self._tasks, *([self._keeper] if self._keeper else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    @property
    def session(self) -> Kept | None:
        """The newest session, perhaps a failed one; None before the first."""
        return None if self._current is None else self._current.session

    def reasons(self) -> list[str]:
        """Why no request can be served now; empty if it can."""
        if not self._ready.is_set():
            return [f"no session at a scheduler: {self._failure or slowness() or 'connecting'}"]
        assert self._current is not None
        trouble = self._current.session.follower.trouble
        return [trouble] if trouble else []

    def report(self, error: Exception) -> None:
        """Something failed that a new session may mend."""
        if self._ready.is_set():
            _log.warning("the session failed and is made anew: %s", type(error).__name__)
            self._failure = error
            self._ready.clear()
            self._wanted.set()

    @asynccontextmanager
    async def lease(self, patience: float = PATIENCE_SECONDS) -> AsyncIterator[SharedSession[Kept]]:
        """The session, which stays open inside the block; NotReady if there is none in time."""
        try:
            async with asyncio.timeout(patience):
                await self._ready.wait()
        except TimeoutError as error:
            raise self._not_ready() from error
        held = self._current
        assert held is not None
        with held.use():
            yield held

    async def _keep(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            backoff = FIRST_BACKOFF
            while not await self._renew():
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF)

    async def _renew(self) -> bool:
        """Open a session and put it in the last one's place; False if that failed."""
        opened: asyncio.Future[SharedSession[Kept]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hold(opened), name="gateway session")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            fresh = await opened
        except Exception as error:  # noqa: BLE001 - a gateway outlives what nobody foresaw, and says why it is not ready
            if type(error) is not type(self._failure):
                _log.warning("no session at a scheduler: %s", error, exc_info=not isinstance(error, _FAILURES))
            self._failure = error
            return False
        before, self._current = self._current, fresh
        if before is not None:
            before.retired.set()
        self._failure = None
        self._ready.set()
        return True

    async def _hold(self, opened: asyncio.Future[SharedSession[Kept]]) -> None:
        try:
            async with self._factory() as session:
                generation = SharedSession(session)
                opened.set_result(generation)
                await generation.over()
        except asyncio.CancelledError:
            if is_asked_to_end():
                raise
            if not opened.done():
                opened.set_exception(ConnectionAbortedError("something that opening it waited for was cancelled"))
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
                return
            # Its users have gone; what closing it says matters to nobody.
            with suppress(*_FAILURES):
                raise

    def _not_ready(self) -> NotReady:
        cause = self._failure
        if cause is None:
            slow = slowness()
            hop = "chain" if slow else "scheduler"
            return NotReady("The gateway is still connecting", slow, "Try again in a few seconds.", hop)
        elsewhere = "chain" if isinstance(cause, ChainError) else "scheduler"
        hop = cause.hop if isinstance(cause, CircuitFailed | OverlayFailed) else elsewhere
        what, remedy = getattr(cause, "what", "The connection failed"), getattr(cause, "remedy", "")
        return NotReady(f"There is no session at a scheduler: {what}", getattr(cause, "value", cause), remedy, hop)
