"""What four paths of three relays add to the first token and to the next ones, beside a direct connection.

Twelve `troth relay start` processes, a destination process whose application streams, and the same application over
pinned HTTPS: the way to a scheduler without the overlay. Both are asked in turns, in one run.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import uvloop
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse
from support.relay_network import RelayNetwork, relay_network

from benchmarks.figures import Figure
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.client import CircuitClient
from troth.overlay.directory.listing import ListedDestination
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.relay.keys import create_handshake_key, load_handshake_key
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.entry import serve_application
from troth.overlay.sessions.sessions import SessionRotation
from troth.overlay.sessions.transport import OverlayTransport
from troth.testnet.ports import free_port
from troth.transport.errors import CircuitFailed
from troth.transport.https import pinned_client
from troth.transport.server import TlsServer, serving

PATHS, HOPS = 4, 3
ROUNDS, TOKENS = 60, 16
PAUSE = 0.02
"""Seconds between two tokens: fifty a second."""
PROMPT = b"x" * 1500
REACH = 10.0
_SEAL, _PORT = "seal.pem", "https.port"
_SERVE = "from benchmarks.overlay.session import serve; serve()"


def measure() -> list[Figure]:
    """How late the first token of an answer is, and a later one, without and with the overlay."""
    with (
        tempfile.TemporaryDirectory(prefix="troth-bench-") as folder,
        relay_network(Path(folder), PATHS * HOPS, destination_code=_SERVE) as network,
    ):
        return uvloop.run(_figures(network, Path(folder) / "destination"))


async def _figures(network: RelayNetwork, folder: Path) -> list[Figure]:
    async with AsyncExitStack() as stack:
        circuits = _Circuits(network)
        stack.push_async_callback(circuits.client.close)
        seal_key = load_handshake_key(folder / _SEAL).public_key().public_bytes_raw()
        listed = ListedDestination(network.destination, seal_key, "", "scheduler", 0, b"")
        began = time.perf_counter()
        sessions = SessionRotation(circuits, lambda: listed)
        await sessions.current()
        opened = (time.perf_counter() - began) * 1e3
        stack.push_async_callback(sessions.close)
        port = int((folder / _PORT).read_text())
        direct = await stack.enter_async_context(
            pinned_client(f"https://127.0.0.1:{port}", network.destination.tls_key_hash)
        )
        hidden = await stack.enter_async_context(
            httpx.AsyncClient(base_url="https://scheduler", transport=OverlayTransport(sessions))
        )
        samples: dict[str, list[list[float]]] = {"direct": [], "hidden": []}
        for number in range(ROUNDS + 5):
            for name, client in (("direct", direct), ("hidden", hidden)):
                times = await _ask(client)
                if number >= 5:
                    samples[name].append(times)
        return [
            Figure("four circuits of three built, one after the other", opened, "ms", note="once per session"),
            *_rows("the first token", samples, 0),
            *_rows("a later token", samples, 1),
        ]


def _rows(name: str, samples: dict[str, list[list[float]]], start: int) -> list[Figure]:
    """p50 of each, and what the overlay adds: the figure with the reach."""
    stop = 1 if start == 0 else None
    found = {who: [one for times in all_times for one in times[start:stop]] for who, all_times in samples.items()}
    direct, hidden = (statistics.median(found[who]) for who in ("direct", "hidden"))
    p95 = statistics.quantiles(found["hidden"], n=20)[-1]
    return [
        Figure(f"{name}, direct HTTPS, p50", direct, "ms"),
        Figure(f"{name}, over the overlay, p50", hidden, "ms", paper=direct, note=f"p95 {p95:.2f}; ratio to direct"),
        Figure(f"{name}, added by the overlay", hidden - direct, "ms", reach=REACH),
    ]


async def _ask(client: httpx.AsyncClient) -> list[float]:
    """How late each token came after it was said, in milliseconds; the first: after the question."""
    asked = time.time()
    times: list[float] = []
    async with client.stream("POST", "/ask", content=PROMPT) as response:
        async for piece in response.aiter_raw():
            now = time.time()
            for said in piece.split():
                times.append((now - (float(said) if times else asked)) * 1e3)
    return times


class _Circuits:
    """The network's relays in their order, as a pool would give them."""

    def __init__(self, network: RelayNetwork) -> None:
        self.client = CircuitClient()
        self._path = network.path

    async def take(self, count: int, seconds: float) -> list[Circuit]:
        return [
            await self.client.build(self._path[number * HOPS : (number + 1) * HOPS], seconds) for number in range(count)
        ]

    async def replace(self, failed: Circuit, seconds: float) -> Circuit:
        raise CircuitFailed("path", 0, "the benchmark has no other relays")

    def release(self, circuit: Circuit) -> None:
        circuit.close()


def _application() -> FastAPI:
    app = FastAPI()

    @app.post("/ask")
    async def ask(request: Request) -> StreamingResponse:
        await request.body()

        async def tokens() -> AsyncIterator[bytes]:
            for number in range(TOKENS):
                if number:
                    await asyncio.sleep(PAUSE)
                yield b"%.7f\n" % time.time()

        return StreamingResponse(tokens())

    return app


async def _serve(folder: Path, port: int) -> None:
    from troth.transport.identity import load_identity

    identity, app = load_identity(folder), _application()
    secret = create_handshake_key(folder / _SEAL)
    destination = Destination(identity.spki_sha256, secret, serve_application(app))
    async with serving(TlsServer(app, identity, "127.0.0.1", free_port())) as server:
        (folder / _PORT).write_text(str(server.port))
        await DeliveryServer(identity, destination.answers).start("127.0.0.1", port)
        await asyncio.Event().wait()


def serve() -> None:
    """The destination's process: its arguments are the folder of its TLS key and its port."""
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
