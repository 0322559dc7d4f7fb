"""The sessions of one client with one destination, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from troth.overlay.directory.listing import ListedDestination
from troth.overlay.errors import OverlayError
from troth.overlay.sessions.session import DEFAULT_THRESHOLD, Circuits, Session, opened
from troth.overlay.sida import Threshold

SECONDS = 600.0
REQUESTS = 256


class Sessions:
    """Gives the current session; an old one is replaced by one with other secrets, and closed once it is idle.

    Args:
        destination: gives the one of the directory that is valid now; another one begins another session.
    """

    def __init__(
        self,
        circuits: Circuits,
        destination: Callable[[], ListedDestination],
        threshold: Threshold = DEFAULT_THRESHOLD,
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
            session, destination = self._session, self._destination()
            if session is not None and not self._aged(session) and _same(session.destination, destination):
                return session
            # The old one is given up only when there is another: what is both current and old would be closed twice.
            self._session = await opened(self._circuits, destination, self._threshold)
            if session is not None:
                self._old.add(session)
            return self._session

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


def _same(one: ListedDestination, other: ListedDestination) -> bool:
    """Whether both are reached and sealed to alike; a new signature over the same is no other destination."""
    return (one.place, one.seal_key) == (other.place, other.seal_key)
