"""Connections that strangers hold open at no cost: they read nothing, or come as a crowd and say nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask
from support.waiting import eventually

from troth.transport import https
from troth.transport.https import pinned_client
from troth.transport.identity import TlsIdentity, create_identity
from troth.transport.server import TlsServer, serving

PIECES, PIECE = 400, b"y" * 10_000
"""More than the buffers of a connection hold."""
UNREAD = 0.5


class Served:
    """A server with a stream, an answer that takes until it is let go, and one that wants a body."""

    def __init__(self, server: TlsServer, identity: TlsIdentity) -> None:
        self.server, self.identity = server, identity
        self.url = f"https://127.0.0.1:{server.port}"
        self.working, self.go_on, self.written = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def has(self, connection: ssl.SSLSocket) -> bool:
        """Whether the server still has its end of a connection."""
        connections: set[Any] = self.server._server.server_state.connections
        return connection.getsockname() in [one.client for one in connections]

    async def answers(self) -> bool:
        """Whether an honest newcomer is answered."""
        async with pinned_client(self.url, self.identity.spki_sha256) as client:
            return (await client.get("/quick")).text == '"quick"'

    def connect(self, sent: bytes) -> ssl.SSLSocket:
        """A stranger that has sent something, as much as is taken, and has read nothing yet."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(("127.0.0.1", self.server.port))
        made = context.wrap_socket(plain)
        made.settimeout(1.0)
        try:
            made.sendall(sent)
        except TimeoutError:
            made.settimeout(10.0)
        return made


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    app = FastAPI()
    identity = create_identity(tmp_path / "tls")
    server = TlsServer(app, identity, "127.0.0.1", 0, grace_seconds=0.2)
    async with serving(server):
        made = Served(server, identity)

        @app.get("/quick")
        async def quick() -> str:
            return "quick"

        @app.get("/page")
        async def page() -> str:
            return "p" * len(PIECE)

        @app.get("/slow")
        async def slow() -> str:
            made.working.set()
            await made.go_on.wait()
            return "slow"

        @app.post("/body")
        async def body(request: Request) -> str:
            return str(len(await request.body()))

        @app.get("/whole")
        async def whole() -> Response:
            return Response(PIECES * PIECE * 4, background=BackgroundTask(made.written.set))

        @app.get("/stream")
        async def stream() -> StreamingResponse:
            return StreamingResponse(pieces())

        yield made


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(PIECES):
        yield PIECE


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@contextmanager
def read_slowly(connection: ssl.SSLSocket, steps: int = 1) -> Iterator[list[int]]:
    """What a peer reads, in 60 times so many steps a second; the sizes."""
    sizes = list[int]()

    async def read() -> None:
        connection.setblocking(False)
        while True:
            await asyncio.sleep(0.016)
            try:
                sizes.extend(len(connection.recv(1 << 14)) for _ in range(steps))
            except ssl.SSLWantReadError:
                continue

    reading = asyncio.create_task(read())
    try:
        yield sizes
    finally:
        reading.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("asked", [get("/stream"), get("/page") * 2_000], ids=["a stream", "questions without end"])
async def test_who_reads_nothing_of_its_answers_does_not_stay(
    served: Served, monkeypatch: pytest.MonkeyPatch, asked: bytes
) -> None:
    monkeypatch.setattr(https, "UNREAD_SECONDS", UNREAD)
    connection = await asyncio.to_thread(served.connect, asked)
    with closing(connection):
        await eventually(lambda: not served.has(connection), 20 * UNREAD)


@pytest.mark.slow
async def test_who_reads_slowly_is_answered_to_the_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes take longer than the time in which half of one is read."""
    monkeypatch.setattr(https, "UNREAD_SECONDS", 2.0)
    connection = await asyncio.to_thread(served.connect, get("/stream"))
    with closing(connection), read_slowly(connection) as sizes:
        await eventually(lambda: sum(sizes) > PIECES * len(PIECE), 20.0)
        assert served.has(connection)


@pytest.mark.slow
async def test_a_long_answer_is_written_as_it_is_read(served: Served) -> None:
    """Else it lay in memory for each reader, and TLS had half a minute to send it when the connection is closed."""
    connection = await asyncio.to_thread(served.connect, get("/whole"))
    with closing(connection), read_slowly(connection, 4) as sizes:
        await eventually(lambda: sum(sizes) > PIECES * len(PIECE) / 4, 20.0)
        assert not served.written.is_set()
        await eventually(served.written.is_set, 60.0)
        assert sum(sizes) > PIECES * len(PIECE)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /qui", b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf", get("/stream")],
    ids=["says nothing", "half a request", "half a body", "reads nothing"],
)
async def test_of_a_crowd_the_oldest_that_waits_for_its_peer_gives_way(
    served: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Eight networks hold all places, and whoever is honest needs one for a moment. Who is being answered stays."""
    monkeypatch.setattr(https, "CONNECTIONS", 4)
    patient = await asyncio.to_thread(served.connect, get("/slow"))
    await served.working.wait()
    crowd = [await asyncio.to_thread(served.connect, sent) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert all(served.has(one) for one in crowd)
    assert await served.answers()
    assert [served.has(one) for one in (patient, *crowd)] == [True, False, True, True]
    served.go_on.set()
    assert b'"slow"' in await asyncio.to_thread(patient.recv, 4096) + await asyncio.to_thread(patient.recv, 4096)
    for one in (patient, *crowd):
        one.close()


async def test_where_all_are_being_answered_a_newcomer_is_turned_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "CONNECTIONS", 1)
    patient = await asyncio.to_thread(served.connect, get("/slow"))
    await served.working.wait()
    late = await asyncio.to_thread(served.connect, b"")
    await eventually(lambda: not served.has(late), 5.0)
    assert served.has(patient)
    served.go_on.set()
    for one in (patient, late):
        one.close()
