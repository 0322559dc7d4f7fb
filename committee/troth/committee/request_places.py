"""Places for requests that a member reads and answers at once: one address never holds all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from troth.committee.requests import host_of


class RequestPlaces:
    """So many requests at once, of one address at most half of them, so that a slow sender leaves room for others."""

    def __init__(self, count: int) -> None:
        self._all = asyncio.Semaphore(count)
        self._share = max(1, count // 2)
        self._hosts: dict[object, tuple[asyncio.Semaphore, int]] = {}
        """By address: its share, and how many requests of it hold a place or wait for one."""

    def full_for(self, request: Request) -> bool:
        """Whether a request from this address would have to wait."""
        known = self._hosts.get(host_of(request))
        return self._all.locked() or (known is not None and known[0].locked())

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[None]:
        """Hold a place, waiting for one first."""
        host = host_of(request)
        share, users = self._hosts.get(host, (asyncio.Semaphore(self._share), 0))
        self._hosts[host] = share, users + 1
        try:
            async with share, self._all:
                yield
        finally:
            share, users = self._hosts.pop(host)
            if users > 1:
                self._hosts[host] = share, users - 1
