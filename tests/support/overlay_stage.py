"""Relays, a destination and a client in one event loop on loopback, over real TLS sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.circuits.client import CircuitClient
from troth.overlay.circuits.descriptors import Directory, PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import RelayIdentity
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.relay.limits import RelayLimits
from troth.overlay.relay.listener import LinkListener
from troth.overlay.relay.metrics import RelayMetrics
from troth.overlay.relay.switch import Switch
from troth.transport.identity import create_identity


async def echo(message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
    """Answers with the message itself."""
    yield message, True


@dataclass
class StagedRelay:
    """A relay without a process of its own."""

    switch: Switch
    listener: LinkListener
    descriptor: RelayDescriptor


@dataclass
class Stage:
    """What a test plays with."""

    relays: list[StagedRelay]
    destination: PinnedAddress
    client: CircuitClient
    server: DeliveryServer
    delivered: list[bytes] = field(default_factory=list)

    @property
    def path(self) -> list[RelayDescriptor]:
        return [relay.descriptor for relay in self.relays]


@asynccontextmanager
async def overlay_stage(
    folder: Path, relays: int = 3, limits: RelayLimits | None = None, answers=echo, *, apart: bool = False
) -> AsyncIterator[Stage]:
    """`relays` relays that know each other, an echoing destination and a client.

    `apart`: each in a /16 of its own (127.1.0.1, 127.2.0.1, …) and of an operator of its own.
    """
    staged = [
        await _relay(folder / f"relay{number}", limits or RelayLimits(), number + 1 if apart else 0)
        for number in range(relays)
    ]
    identity = create_identity(folder / "destination")
    server = DeliveryServer(identity, answers)
    destination = PinnedAddress("127.0.0.1", await server.start("127.0.0.1", 0), identity.spki_sha256)
    directory = Directory.of(tuple(relay.descriptor for relay in staged), (destination,))
    for relay in staged:
        relay.switch.directory = directory
    client = CircuitClient()
    stage = Stage(staged, destination, client, server)
    try:
        yield stage
    finally:
        await client.close()
        await server.stop()
        for relay in staged:
            relay.listener.stop_listening()
            await relay.switch.pool.close()
            relay.switch.deliveries.close()
            relay.listener.close()
        await asyncio.sleep(0)


async def _relay(folder: Path, limits: RelayLimits, number: int) -> StagedRelay:
    tls = create_identity(folder)
    identity = RelayIdentity(tls.spki_sha256, X25519PrivateKey.generate())
    switch = Switch(identity, Directory({}, {}), limits, RelayMetrics())
    listener = LinkListener(switch, tls)
    host, operator = (f"127.{number}.0.1", f"0x{number:040x}") if number else ("127.0.0.1", "")
    port = listener.start(host, 0)
    return StagedRelay(
        switch, listener, RelayDescriptor(PinnedAddress(host, port, identity.name), identity.public, operator)
    )
