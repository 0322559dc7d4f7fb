"""A destination behind relays in one event loop, and a client with disjoint circuits to it; real TLS sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.overlay_stage import Stage, StagedRelay, overlay_stage

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.directory.listing import ListedDestination
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.limits import SessionLimits
from troth.overlay.sessions.messages import HttpRequest, ResponseHead
from troth.overlay.sessions.serving import Responder, Serve
from troth.overlay.sessions.session import Session, opened
from troth.transport.errors import CircuitFailed

HOPS = 3


class StagedCircuits:
    """Circuits over the relays in order: the first three make the first path, and so on."""

    def __init__(self, client: CircuitClient, relays: list[StagedRelay]) -> None:
        self._client = client
        self._relays = relays
        self._next = 0
        self.held: list[Circuit] = []
        self.replaced: list[CircuitFailed | None] = []
        self.repaired = asyncio.Event()

    async def take(self, count: int, seconds: float) -> list[Circuit]:
        return [await self._build() for _ in range(count)]

    async def replace(self, failed: Circuit, seconds: float) -> Circuit:
        self.replaced.append(failed.failure)
        self.release(failed)
        circuit = await self._build()
        self.repaired.set()
        return circuit

    def release(self, circuit: Circuit) -> None:
        if circuit in self.held:
            self.held.remove(circuit)
        circuit.close()

    async def _build(self) -> Circuit:
        if self._next + HOPS > len(self._relays):
            raise CircuitFailed("path", 0, "no relays are left")
        path = [relay.descriptor for relay in self._relays[self._next : self._next + HOPS]]
        self._next += HOPS
        circuit = await self._client.build(path)
        self.held.append(circuit)
        return circuit


@dataclass
class SessionStage:
    """What a test plays with."""

    overlay: Stage
    destination: Destination
    listed: ListedDestination
    circuits: StagedCircuits
    session: Session
    secret: X25519PrivateKey
    asked: list[HttpRequest] = field(default_factory=list)

    def relay_of(self, path: int, hop: int) -> StagedRelay:
        """Hop 0 is the guard."""
        return self.overlay.relays[path * HOPS + hop]


async def kill(relay: StagedRelay) -> None:
    """Cut every connection of a relay, and refuse new ones."""
    relay.listener.stop_listening()
    for link in (*relay.listener.links, *relay.switch.pool.links()):
        link.close()
    relay.listener.close()


async def echo(request: HttpRequest, responder: Responder) -> None:
    """Answers with target and body."""
    await responder.head(ResponseHead(200, (("content-type", "text/plain"),)))
    await responder.body(request.target.encode() + b" " + request.body)


@asynccontextmanager
async def session_stage(
    folder: Path, serve: Serve = echo, *, relays: int = 12, limits: SessionLimits | None = None
) -> AsyncIterator[SessionStage]:
    """`relays` relays, a destination that runs `serve`, a session over the first four paths."""
    entry: list[Destination] = []

    def answers(message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        return entry[0].answers(message)

    async with overlay_stage(folder, relays, answers=answers) as overlay:
        secret = X25519PrivateKey.generate()
        destination = Destination(overlay.destination.name, secret, serve, limits)
        entry.append(destination)
        listed = ListedDestination(
            overlay.destination, secret.public_key().public_bytes_raw(), "0x" + "00" * 20, "scheduler", 0, b""
        )
        circuits = StagedCircuits(overlay.client, overlay.relays)
        sweeping = asyncio.create_task(destination.sweeping())
        session = await opened(circuits, listed)
        stage = SessionStage(overlay, destination, listed, circuits, session, secret)
        try:
            yield stage
        finally:
            await session.close()
            sweeping.cancel()
            destination.close()


async def whole(session: Session, target: str = "/", body: bytes = b"") -> bytes:
    """The body of the answer to one request."""
    response = await session.request(HttpRequest("POST", target, (), body))
    return b"".join([piece async for piece in response.body])
