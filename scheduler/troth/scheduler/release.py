"""Telling a task's nodes that it is over, so that they free their caches at once and not after a timeout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from troth.overlay.errors import OverlayError
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32
from troth.protocol.wire import Release
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.peers import Peers

log = logging.getLogger(__name__)

SECONDS = 5.0
"""A node that does not answer by then frees its cache by its own timeout."""


async def release(task: AdmittedTask, peers: Peers) -> None:
    """Send Release to every party; who cannot be reached is left to its own timeout."""
    await release_from(task.task_id, {party for segment in task.assignment.parties for party in segment}, peers)


async def release_from(task_id: Hash32, parties: Iterable[Address], peers: Peers) -> None:
    """Send Release to some parties of a task."""
    await asyncio.gather(*[_release(task_id, party, peers) for party in parties])


async def _release(task_id: Hash32, party: Address, peers: Peers) -> None:
    try:
        channel = peers.channel(party)
        if channel.connected:
            await channel.request(Release(task_id=task_id), timeout=SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s was not released: %s", party, error)
