"""The way to other nodes, measured with requests that every endpoint answers at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import httpx

from troth.overlay.errors import OverlayError
from troth.overlay.https import naming_errors, pinned_client
from troth.protocol.state import Node
from troth.protocol.types import Address
from troth.protocol.wire_reports import LinkPart

log = logging.getLogger(__name__)

TIMEOUT = 2.0
AT_ONCE = 4


async def ways_to(nodes: Sequence[Node]) -> list[LinkPart]:
    """The one-way time to each node that answers. Endpoints and TLS keys are those on chain, never a scheduler's."""
    free = asyncio.Semaphore(AT_ONCE)

    async def measured(node: Node) -> LinkPart | None:
        async with free:
            seconds = await _one_way(node)
        return None if seconds is None else LinkPart(Address(node.operator), int(seconds * 1e6))

    found = await asyncio.gather(*[measured(node) for node in nodes])
    return [link for link in found if link is not None]


async def _one_way(node: Node) -> float | None:
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
