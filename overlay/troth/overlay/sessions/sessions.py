"""The sessions of one client with one destination, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from troth.overlay.directory.listing import ListedDestination
from troth.overlay.errors import OverlayError
from troth.overlay.sessions.session import DEFAULT_THRESHOLD, Circuits, Session, opened
from troth.overlay.sida import Threshold

SECONDS = 600.0
REQUESTS = 256


class Sessions:
    """Gives the current session; an old one is replaced by one with other secrets once its requests are over."""

    def __init__(
        self, circuits: Circuits, destination: ListedDestination, threshold: Threshold = DEFAULT_THRESHOLD
    ) -> None:
        self._circuits = circuits
        self._destination = destination
        self._threshold = threshold
        self._session: Session | None = None
        self._old: set[Session] = set()
        self._opening = asyncio.Lock()

    async def current(self) -> Session:
        """A session for the next request; raises CircuitFailed or OverlayError."""
        async with self._opening:
            await self._close_old()
            session = self._session
            if session is not None and self._aged(session):
                self._old.add(session)
                session = None
            if session is None:
                session = self._session = await opened(self._circuits, self._destination, self._threshold)
            return session

    async def close(self) -> None:
        """End all."""
        for session in (*self._old, *([self._session] if self._session else [])):
            with contextlib.suppress(OverlayError):
                await session.close()
        self._old.clear()
        self._session = None

    async def _close_old(self) -> None:
        for session in [session for session in self._old if not session.busy]:
            self._old.discard(session)
            await session.close()

    @staticmethod
    def _aged(session: Session) -> bool:
        return session.served >= REQUESTS or asyncio.get_running_loop().time() - session.began >= SECONDS


@contextlib.asynccontextmanager
async def sessions_with(
    circuits: Circuits, destination: ListedDestination, threshold: Threshold = DEFAULT_THRESHOLD
) -> AsyncIterator[Sessions]:
    """Sessions inside the block."""
    sessions = Sessions(circuits, destination, threshold)
    try:
        yield sessions
    finally:
        await sessions.close()
