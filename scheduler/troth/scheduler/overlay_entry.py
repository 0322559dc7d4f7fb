"""The scheduler's entry to the overlay: the same application as over HTTPS, for clients that nobody sees."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from troth.overlay.circuits.descriptors import Place
from troth.overlay.directory.membership import read_membership
from troth.overlay.directory.publishing import keep_publishing, publish_destination
from troth.overlay.identity import TlsIdentity
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.relay.key import create_handshake_key, load_handshake_key
from troth.overlay.sessions.asgi import serve_application
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.metrics import Metrics
from troth.scheduler.configuration import Configuration, OverlayEntry

log = logging.getLogger(__name__)

KIND = "scheduler"


@asynccontextmanager
async def overlay_entry(
    configuration: Configuration,
    operator_secret: bytes,
    identity: TlsIdentity,
    app: FastAPI,
    registry: CollectorRegistry,
) -> AsyncIterator[int | None]:
    """Takes deliveries inside the block, and has the committee list it; yields the port, None without [overlay]."""
    entry = configuration.overlay
    if entry is None:
        yield None
        return
    secret = seal_secret(configuration)
    destination = Destination(identity.spki_sha256, secret, serve_application(app), metrics=Metrics(registry))
    server = DeliveryServer(identity, destination.answers)
    async with AsyncExitStack() as stack:
        port = await server.start(entry.host, entry.port)
        stack.push_async_callback(server.stop)
        stack.callback(destination.close)
        log.info("taking deliveries of the overlay on port %d", port)
        for work in (destination.sweeping(), _publishing(configuration.rpc, entry, operator_secret, identity, secret)):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        yield port


def seal_secret(configuration: Configuration) -> X25519PrivateKey:
    """The key to which clients seal, made on the first call; raises RelayMisconfigured."""
    path = configuration.seal_key
    return load_handshake_key(path) if path.exists() else create_handshake_key(path)


async def _publishing(
    rpc: str, entry: OverlayEntry, operator_secret: bytes, identity: TlsIdentity, secret: X25519PrivateKey
) -> None:
    place = Place(*entry.address, identity.spki_sha256)
    seal_key = secret.public_key().public_bytes_raw()

    async def once() -> int:
        membership = await read_membership(rpc, entry.committee)
        return await publish_destination(operator_secret, identity, place, membership, seal_key=seal_key, kind=KIND)

    await keep_publishing(once, again=entry.publish_seconds)
