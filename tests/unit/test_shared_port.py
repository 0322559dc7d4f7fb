"""One port for HTTPS and for another protocol, told apart within the TLS handshake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from troth.transport.identity import TlsIdentity, create_identity
from troth.transport.server import TlsServer, serving
from troth.transport.shared_port import SharedPort
from troth.transport.tls import pinned_context

NAME = "toy/1"
ASKED = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class Shouting(asyncio.Protocol):
    """Says what it hears in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._line = transport

    def data_received(self, data: bytes) -> None:
        self._line.write(data.upper())


class Served:
    """A server with a shared port, and its key."""

    def __init__(self, folder: Path) -> None:
        self.shared, self.identity = SharedPort((NAME,)), create_identity(folder)
        app = FastAPI()

        @app.get("/livez")
        async def live() -> str:
            return "https"

        self.server = TlsServer(app, self.identity, "127.0.0.1", 0, shared=self.shared)

    async def said(self, asked: bytes, *names: str) -> bytes:
        """The first piece of an answer to whoever offers these names."""
        return await said(self.identity, self.server.port, asked, *names)


async def said(identity: TlsIdentity, port: int, asked: bytes, *names: str) -> bytes:
    context = pinned_context(identity.spki_sha256)
    if names:
        context.set_alpn_protocols(list(names))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
    try:
        writer.write(asked)
        return await asyncio.wait_for(reader.read(4096), 30)
    except OSError:
        return b""
    finally:
        writer.transport.abort()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    made = Served(folder)
    async with serving(made.server):
        yield made


@pytest.mark.parametrize("names", [(), ("http/1.1",), ("h2",), ("h2", "http/1.1"), ("toy/2",)])
async def test_whoever_asks_for_no_other_protocol_gets_https(tmp_path: Path, names: tuple[str, ...]) -> None:
    async with served(tmp_path) as made:
        with made.shared.serving(NAME, Shouting):
            assert (await made.said(ASKED, *names)).startswith(b"HTTP/1.1 200")


async def test_a_name_is_served_while_somebody_serves_it(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        assert await made.said(ASKED, NAME) == b""
        with made.shared.serving(NAME, Shouting):
            assert await made.said(b"hello", NAME) == b"HELLO"
            assert await made.said(b"hello", "http/1.1", NAME) == b"HELLO", "the server prefers it"
        assert await made.said(ASKED, NAME) == b""
        assert (await made.said(ASKED)).startswith(b"HTTP/1.1 200")


async def test_a_server_that_shares_nothing_speaks_https_alone(tmp_path: Path) -> None:
    identity = create_identity(tmp_path)
    app = FastAPI()
    async with serving(TlsServer(app, identity, "127.0.0.1", 0)) as server:
        assert (await said(identity, server.port, ASKED, NAME)).startswith(b"HTTP/1.1 404")
