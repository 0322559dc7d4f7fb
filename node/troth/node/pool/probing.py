"""The way to other nodes, measured with requests that every endpoint answers at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

import httpx

from troth.node.pool.contacts import OperatorContact
from troth.protocol.types import Address
from troth.protocol.wire_reports import LinkPart
from troth.transport.errors import OverlayError
from troth.transport.https import naming_errors, pinned_client

log = logging.getLogger(__name__)

TIMEOUT = 2.0
AT_ONCE = 4
REMEMBERED_SECONDS = 60.0
"""For how long the way to a node, or that there is none, is not measured again."""


class ProbedLinks:
    """The ways from this node, each measured once a minute at most, whoever asks and however often.

    A scheduler that asks all nodes for the way to one in every report would else have them all knock at it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Address, tuple[float, LinkPart | None]] = {}

    async def to(self, nodes: Iterable[OperatorContact]) -> list[LinkPart]:
        """The ways to those that answer, or did within the minute; those being measured for another are left out."""
        now = self._clock()
        self._known = {name: held for name, held in self._known.items() if now - held[0] < REMEMBERED_SECONDS}
        wanted = {node.operator: node for node in nodes}
        new = [node for name, node in wanted.items() if name not in self._known]
        self._known |= {node.operator: (now, None) for node in new}
        for link in await ways_to(new):
            self._known[Address(link.node)] = (now, link)
        held = [self._known.get(name) for name in wanted]
        return [one[1] for one in held if one is not None and one[1] is not None]


async def ways_to(nodes: Sequence[OperatorContact]) -> list[LinkPart]:
    """The one-way time to each node that answers. Endpoints and TLS keys are those on chain, never a scheduler's."""
    free = asyncio.Semaphore(AT_ONCE)

    async def measured(node: OperatorContact) -> LinkPart | None:
        async with free:
            seconds = await _one_way(node)
        return None if seconds is None else LinkPart(Address(node.operator), int(seconds * 1e6))

    found = await asyncio.gather(*[measured(node) for node in nodes])
    return [link for link in found if link is not None]


async def _one_way(node: OperatorContact) -> float | None:
    try:
        with naming_errors(node.endpoint):
            async with pinned_client(node.endpoint, node.tls_key_hash, TIMEOUT) as client:
                # The first request pays for the handshakes.
                await _answered(client)
                before = time.perf_counter()
                await _answered(client)
                return (time.perf_counter() - before) / 2
    except (OverlayError, httpx.HTTPError, TimeoutError, OSError, ValueError) as error:
        # The last two also stand for an endpoint that cannot be one: it is a stranger's registration.
        log.debug("the way to %s could not be measured: %s", node.operator, error)
        return None


async def _answered(client: httpx.AsyncClient) -> None:
    """One small answer; its body is not read, since a stranger decides how long it is."""
    async with asyncio.timeout(TIMEOUT), client.stream("GET", "/livez"):
        pass
