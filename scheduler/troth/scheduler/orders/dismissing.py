"""Telling nodes that nothing more is computed for an order: their caches are free, what they signed stays with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from troth.overlay.errors import OverlayError
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Dismiss
from troth.scheduler.orders.desk import Desk

log = logging.getLogger(__name__)

DISMISS_SECONDS = 5.0


async def dismiss(desk: Desk, order_id: Hash32, nodes: Iterable[Address]) -> None:
    """Tell each node once; who does not hear it frees its cache by itself, later."""
    await asyncio.gather(*[_tell(desk, order_id, node) for node in dict.fromkeys(nodes)])


async def _tell(desk: Desk, order_id: Hash32, node: Address) -> None:
    try:
        await desk.peers.channel(node).request(Dismiss(order_id), b"", DISMISS_SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s was not told that an order is over: %s", node, error)
