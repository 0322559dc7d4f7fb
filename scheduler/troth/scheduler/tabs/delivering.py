"""Acknowledging to nodes: what is due goes into the books, and the newer word to the node."""

from __future__ import annotations

import asyncio
import logging

from troth.overlay.errors import OverlayError
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.wire_market import Noted, Redeemable
from troth.scheduler.orders.desk import Desk
from troth.scheduler.tabs.due import decision, rejections_decided
from troth.scheduler.tabs.node_tabs import NodeTab

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 10.0


async def acknowledge_nodes(desk: Desk) -> None:
    """Acknowledge what is due, store it, and tell every node whose word is newer than the one it has noted."""
    ledger, store = desk.ledger, desk.store
    lag = ledger.parameters.lag
    decided = rejections_decided(desk.node_tabs, ledger.state, store.get, ledger.block, lag)
    due = desk.node_tabs.acknowledge_due(ledger.block, decision(ledger.state, store.get))
    if decided or due:
        await desk.database.commit(*decided, *due)
    behind = [held for held in desk.node_tabs if held.book.spent > held.delivered]
    await asyncio.gather(*[_deliver(desk, held) for held in behind])


async def _deliver(desk: Desk, held: NodeTab) -> None:
    """A node that is away hears it with its next promise, or the next time."""
    spent, sent = held.book.spent, canonical.encode(desk.node_tabs.voucher(held.node))
    try:
        frame = await desk.peers.channel(held.node).request(Redeemable(), sent, DELIVERY_SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s did not note its newest voucher: %s", held.node, error)
        return
    if isinstance(frame.header, Noted):
        held.delivered = max(held.delivered, spent)
