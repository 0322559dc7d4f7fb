"""A server that is told to stop finishes what is under way, and does not insist on it; idle peers do not hold it up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from support.waiting import eventually

from troth.transport.errors import ChannelUnavailable
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import create_identity
from troth.transport.server import GOODBYE_SECONDS, TlsServer, run_until_stopped


async def test_the_first_signal_waits_for_what_is_under_way_and_the_second_does_not() -> None:
    draining = asyncio.Event()

    async def never_done() -> None:
        draining.set()
        await asyncio.Event().wait()

    server = TlsServer(FastAPI(), None, "127.0.0.1", 0, drain=never_done)
    ready = asyncio.Event()
    running = asyncio.create_task(run_until_stopped(server, lambda port: ready.set()))
    await ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await draining.wait()
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(running, 60)


async def test_a_drain_that_fails_is_not_hidden() -> None:
    async def broken() -> None:
        raise RuntimeError("the journal is gone")

    server = TlsServer(FastAPI(), None, "127.0.0.1", 0, drain=broken)
    await server.start()
    with pytest.raises(RuntimeError, match="the journal is gone"):
        await server.stop()


GRACE = 600.0
SECONDS = 20.0
"""Less than the grace and than the half minute after which asyncio cuts such a connection itself."""


LARGE = 32 * 2**20
"""Bytes of an answer that no socket's buffers hold."""


class Asked:
    """What the server saw; ``answering`` is set while it answers, ``answered`` lets it end."""

    def __init__(self) -> None:
        self.answering, self.answered, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/quick")
        async def quick() -> str:
            return "quick"

        @app.get("/large")
        async def large() -> Response:
            return Response(bytes(LARGE))

        @app.get("/slow")
        async def slow() -> str:
            self.answering.set()
            try:
                await self.answered.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "slow"

        return app


@asynccontextmanager
async def asking(folder: Path, asked: Asked, grace: float) -> AsyncIterator[tuple[TlsServer, httpx.AsyncClient]]:
    identity = create_identity(folder / "tls")
    server = TlsServer(asked.app(), identity, "127.0.0.1", 0, grace_seconds=grace)
    await server.start()
    async with pinned_client(f"https://127.0.0.1:{server.port}", identity.spki_sha256) as client:
        assert (await client.get("/quick")).json() == "quick"
        yield server, client


async def test_a_peer_that_reads_nothing_does_not_hold_it_up(tmp_path: Path) -> None:
    """It keeps its connection for a next request, and does not see that TLS was ended."""
    async with asking(tmp_path, Asked(), GRACE) as (server, client):
        async with asyncio.timeout(SECONDS):
            await server.stop()
        with pytest.raises(ChannelUnavailable), naming_errors("the server"):
            await client.get("/quick")


def tls_request(port: int, asked: bytes) -> ssl.SSLSocket:
    """A connection that has sent something, and reads nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    connection.sendall(asked)
    return connection


async def test_a_peer_whose_connection_the_server_had_closed_before_does_not_hold_it_up(tmp_path: Path) -> None:
    """It was told the end of TLS after its answer, and did not see it: to tell it twice is an error of asyncio's."""
    asked = b"GET /quick HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    async with asking(tmp_path, Asked(), GRACE) as (server, _):
        connection = await asyncio.to_thread(tls_request, server.port, asked)
        with connection:
            connections = server._server.server_state.connections
            await eventually(lambda: any(one.transport.is_closing() for one in connections))
            async with asyncio.timeout(SECONDS):
                await server.stop()


async def test_a_connection_that_was_closed_twice_breaks_nothing(tmp_path: Path) -> None:
    """As a websocket's protocol does it, beside the server: asyncio answers nothing about such a connection."""
    asked = b"GET /quick HTTP/1.1\r\nHost: here\r\n\r\n"
    async with asking(tmp_path, Asked(), GRACE) as (server, _):
        connection = await asyncio.to_thread(tls_request, server.port, asked)
        connections = server._server.server_state.connections
        await eventually(lambda: len(connections) == 2)
        with connection:
            for one in connections:
                one.transport.close()
                one.transport.close()
            async with asyncio.timeout(SECONDS):
                await server.stop()


async def test_what_is_being_answered_is_answered(tmp_path: Path) -> None:
    asked = Asked()
    async with asking(tmp_path, asked, GRACE) as (server, client), asyncio.timeout(SECONDS):
        answer = asyncio.create_task(client.get("/slow"))
        await asked.answering.wait()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(2 * GOODBYE_SECONDS)
        assert not stopping.done()
        asked.answered.set()
        assert (await answer).json() == "slow"
        await client.aclose()
        await stopping


async def test_who_reads_a_finished_answer_slowly_gets_all_of_it(tmp_path: Path) -> None:
    async with asking(tmp_path, Asked(), GRACE) as (server, client), asyncio.timeout(SECONDS):
        async with client.stream("GET", "/large") as answer:
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(2 * GOODBYE_SECONDS)
            assert len(await answer.aread()) == LARGE
        await client.aclose()
        await stopping


async def test_what_takes_longer_than_the_grace_is_cut(tmp_path: Path) -> None:
    asked = Asked()
    async with asking(tmp_path, asked, 0.1) as (server, client), asyncio.timeout(SECONDS):
        answer = asyncio.create_task(client.get("/slow"))
        await asked.answering.wait()
        await server.stop()
        await asked.cancelled.wait()
        with pytest.raises(httpx.HTTPError):
            (await answer).raise_for_status()
