"""The sessions of one client with one destination, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from troth.overlay.directory.listing import ListedDestination
from troth.overlay.sessions.session import Circuits, Session, opened
from troth.transport.errors import OverlayError

SECONDS = 600.0
REQUESTS = 256
REFRESH_SECONDS = 30.0
"""Between two looks for a newer directory because a session failed."""


class SessionRotation:
    """Gives the current session; an old one is replaced by one with other secrets, and closed once it is idle.

    Args:
        destination: gives the one of the directory that is valid now; another one begins another session.
        refresh: fetches a newer directory. A list that was made while the destination was away says nothing of it, or
            says what is over, until it expires: a newer one is looked for once before a session fails.
    """

    def __init__(
        self,
        circuits: Circuits,
        destination: Callable[[], ListedDestination],
        *,
        refresh: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._circuits = circuits
        self._destination = destination
        self._session: Session | None = None
        self._old: set[Session] = set()
        self._refresh = refresh
        self._refreshed = float("-inf")
        self._opening = asyncio.Lock()

    async def current(self) -> Session:
        """A session for the next request; raises CircuitFailed or OverlayError."""
        async with self._opening:
            await self._close_old()
            try:
                return await self._one()
            except OverlayError:
                if not await self._is_newer():
                    raise
            return await self._one()

    async def _one(self) -> Session:
        session, destination = self._session, self._destination()
        if session is not None and not self._aged(session) and _same(session.destination, destination):
            return session
        # The old one is given up only when there is another: what is both current and old would be closed twice.
        self._session = await opened(self._circuits, destination)
        if session is not None:
            self._old.add(session)
        return self._session

    async def _is_newer(self) -> bool:
        """Whether a directory was fetched since the failure; not again and again for a destination that stays away."""
        now = asyncio.get_running_loop().time()
        if self._refresh is None or now < self._refreshed + REFRESH_SECONDS:
            return False
        self._refreshed = now
        with contextlib.suppress(OverlayError):
            await self._refresh()
            return True
        return False

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
