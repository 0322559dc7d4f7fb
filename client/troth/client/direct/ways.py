"""Open ways to nodes: one each, a bounded number, the one that was used longest ago given up first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from troth.client.api import SchedulerApi
from troth.overlay.errors import OverlayError
from troth.protocol.types import Address

MOST_WAYS = 8
"""Ways that are kept while nobody uses them; those in use are not counted out."""
FRESH_SECONDS = 60.0
"""How long an answer shows that a node can be reached."""


@dataclass
class Way:
    """The scheduler's interface as it is reached through one node; `close` lets go of what leads there."""

    api: SchedulerApi
    close: Callable[[], Awaitable[None]]
    users: int = 0
    answered: float = field(default=float("-inf"))

    @property
    def fresh(self) -> bool:
        """Whether the node has answered a moment ago."""
        return time.monotonic() - self.answered < FRESH_SECONDS

    def heard(self) -> None:
        """The node has answered."""
        self.answered = time.monotonic()


Opening = Callable[[Address], Way]
"""Makes the way to a node, without waiting for anything."""


class Ways:
    """Use `to` for each request, and `close` at the end."""

    def __init__(self, opening: Opening, most: int = MOST_WAYS) -> None:
        self._opening = opening
        self._most = most
        self._ways: OrderedDict[Address, Way] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def to(self, node: Address) -> AsyncIterator[Way]:
        """The way to this node, which stays open inside the block."""
        way = self._ways.get(node)
        if way is None:
            way = self._ways[node] = self._opening(node)
        self._ways.move_to_end(node)
        way.users += 1
        self._trim()
        try:
            yield way
        finally:
            way.users -= 1
            self._trim()

    def nodes(self) -> list[Address]:
        """Nodes to which a way is open, the one used last at the end."""
        return list(self._ways)

    async def close(self) -> None:
        """Give all of them up, also those in use."""
        while self._ways:
            self._give_up(next(iter(self._ways)))
        await asyncio.gather(*self._closing)

    def _trim(self) -> None:
        idle = [node for node, way in self._ways.items() if not way.users]
        for node in idle[: max(0, len(self._ways) - self._most)]:
            self._give_up(node)

    def _give_up(self, node: Address) -> None:
        # In the background: a session's last words may take seconds, and a request is waiting.
        task = asyncio.create_task(_closed(self._ways.pop(node)), name="closing a way")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _closed(way: Way) -> None:
    with contextlib.suppress(OverlayError):
        await way.close()
