"""Open ways to schedulers through nodes: a bounded number, the one that was used longest ago given up first."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from troth.client.orders.calls import MarketCalls
from troth.protocol.types import Address
from troth.transport.errors import OverlayError

MOST_WAYS = 8
"""Ways that are kept while nobody uses them; those in use are not counted out."""


@dataclass
class SchedulerWay:
    """A scheduler's interface as it is reached through one node; `close` lets go of what leads there."""

    calls: MarketCalls
    close: Callable[[], Awaitable[None]]
    users: int = 0


Opening = Callable[[Address, Address], SchedulerWay]
"""Makes the way to a scheduler through a node, without waiting for anything."""


class SchedulerWays:
    """Use `to` for each request, and `close` at the end."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._ways: OrderedDict[tuple[Address, Address], SchedulerWay] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def to(self, scheduler: Address, node: Address) -> AsyncIterator[MarketCalls]:
        """The scheduler's interface through this node, which stays open inside the block."""
        name = (scheduler, node)
        way = self._ways.get(name)
        if way is None:
            way = self._ways[name] = self._opening(scheduler, node)
        self._ways.move_to_end(name)
        way.users += 1
        self._trim()
        try:
            yield way.calls
        finally:
            way.users -= 1
            self._trim()

    def nodes(self) -> list[Address]:
        """Nodes to which a way is open, the one used last at the end."""
        return [node for _, node in self._ways]

    async def close(self) -> None:
        """Give all of them up, also those in use."""
        while self._ways:
            self._give_up(next(iter(self._ways)))
        await asyncio.gather(*self._closing)

    def _trim(self) -> None:
        idle = [name for name, way in self._ways.items() if not way.users]
        for name in idle[: max(0, len(self._ways) - MOST_WAYS)]:
            self._give_up(name)

    def _give_up(self, name: tuple[Address, Address]) -> None:
        # In the background: a session's last words may take seconds, and a request is waiting.
        task = asyncio.create_task(_closed(self._ways.pop(name)), name="closing a way")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _closed(way: SchedulerWay) -> None:
    with contextlib.suppress(OverlayError):
        await way.close()
