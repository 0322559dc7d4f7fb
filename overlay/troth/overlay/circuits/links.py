"""Outgoing links, shared: one to each neighbour, opened on the first wish and closed when idle."""

from __future__ import annotations

import asyncio

from troth.overlay.circuits.descriptors import Place
from troth.overlay.circuits.link import Link, LinkOwner, dial
from troth.overlay.errors import Overloaded


class LinkPool:
    """Links that this end dialed, by the name of the other end.

    Args:
        owner: who gets their cells.
        seconds: for TCP and TLS together.
        limit: links at once.
    """

    def __init__(self, owner: LinkOwner, *, seconds: float = 5.0, limit: int = 256) -> None:
        self._owner = owner
        self._seconds = seconds
        self._limit = limit
        self._links: dict[bytes, Link] = {}
        self._opening: dict[bytes, asyncio.Task[Link]] = {}

    def __len__(self) -> int:
        return len(self._links) + len(self._opening)

    async def to(self, place: Place) -> Link:
        """The open link to `place`; raises WrongTlsKey, ChannelUnavailable or Overloaded."""
        link = self._links.get(place.name)
        if link is not None and link.open:
            return link
        opening = self._opening.get(place.name)
        if opening is None:
            if len(self) >= self._limit:
                raise Overloaded("Too many links are open", len(self), "Try again later.")
            opening = self._opening[place.name] = asyncio.create_task(self._open(place))
            # Everybody who waits may be gone before it fails.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(opening)

    async def _open(self, place: Place) -> Link:
        try:
            link = await dial(place, self._owner, self._seconds)
            self._links[place.name] = link
            return link
        finally:
            self._opening.pop(place.name, None)

    def forget(self, link: Link) -> None:
        """The link is gone."""
        for name in [name for name, known in self._links.items() if known is link]:
            del self._links[name]

    def links(self) -> tuple[Link, ...]:
        """Those that are open now."""
        return tuple(self._links.values())

    async def close(self) -> None:
        """Close all; whoever waits for one gets ChannelUnavailable."""
        for opening in self._opening.values():
            opening.cancel()
        results = await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for link in (*self._links.values(), *(one for one in results if isinstance(one, Link))):
            link.close()
        self._links.clear()
