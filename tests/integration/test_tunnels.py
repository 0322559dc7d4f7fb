"""Tunnels over real sockets and TLS: a node that listens on loopback alone is reached by its channel and by HTTPS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from support.lending import DOMAIN, IMPOSTOR, NODE, QUICK, SCHEDULER, Lending
from support.waiting import eventually
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from troth.protocol.types import Address
from troth.protocol.wire import ORDER_REQUESTS, Dismiss, OrderReply, OrderRequest, Received
from troth.protocol.wire_tunnel import VISITORS_LIMIT, Attend, Visited
from troth.transport import https
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.channel_server import ChannelServer
from troth.transport.errors import ChannelUnavailable, OverlayError, RemoteFailure, TunnelRefused, WrongTlsKey
from troth.transport.https import pinned_client
from troth.transport.identity import Operator, TlsIdentity, create_identity
from troth.transport.server import TlsServer, serving
from troth.transport.tls import pinned_context
from troth.transport.tunnel_client import Lender, Tunnel
from troth.transport.tunnel_server import TUNNEL_PATH, TunnelLimits

TASK = Dismiss(order=b"\x07" * 32)


class Behind:
    """A node's server on loopback."""

    def __init__(self, folder: Path) -> None:
        self.identity: TlsIdentity = create_identity(folder)
        app = FastAPI()

        @app.get("/v1/large")
        async def large() -> str:
            return "y" * 3_000_000

        channels = ChannelServer(NODE, self.echo, lambda sender: sender == SCHEDULER.address, requests=ORDER_REQUESTS)
        channels.mount(app)
        self.server = TlsServer(app, self.identity, "127.0.0.1", 0, tunnelled=True)

    async def echo(self, sender: Address, _header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        assert sender == SCHEDULER.address
        return Received(positions=len(payload)), bytes(payload)

    def channel(self, endpoint: str, pin: bytes | None = None) -> Channel:
        return Channel(endpoint, pin or self.identity.spki_sha256, SCHEDULER, NODE.address)


@asynccontextmanager
async def reached(folder: Path, limits: TunnelLimits = QUICK) -> AsyncIterator[tuple[Lending, Behind, Tunnel]]:
    lending, behind = Lending(folder / "lender", limits), Behind(folder / "node")
    async with lending.serving(), serving(behind.server):
        tunnel = Tunnel(NODE, lambda: lending.lender, "127.0.0.1")
        tunnel.start(behind.server.port)
        try:
            await lending.attended()
            yield lending, behind, tunnel
        finally:
            await tunnel.close()


async def test_signed_requests_and_large_answers_pass(tmp_path: Path) -> None:
    async with reached(tmp_path) as (lending, behind, tunnel):
        channel, rows = behind.channel(lending.endpoint), bytes(range(256)) * 8192
        assert bytes((await channel.request(TASK, rows)).payload) == rows
        assert tunnel.trouble == ""
        assert (lending.tunnels.nodes, lending.tunnels.visitors, tunnel.visits) == (1, 1, 1)
        async with pinned_client(lending.endpoint, behind.identity.spki_sha256) as client:
            answers = await asyncio.gather(*(client.get("/v1/large") for _ in range(3)))
        assert [len(answer.text) for answer in answers] == [3_000_002] * 3
        assert lending.tunnels.passed > 2 * len(rows) + 9_000_000
        await channel.close()
        await eventually(lambda: lending.tunnels.visitors == tunnel.visits == 0)


async def test_it_stays_open_while_nobody_comes(tmp_path: Path) -> None:
    async with reached(tmp_path) as (lending, behind, _):
        await asyncio.sleep(2 * QUICK.away)
        channel = behind.channel(lending.endpoint)
        assert (await channel.request(TASK, b"late")).header == Received(positions=4)
        await channel.close()


async def test_the_lender_cannot_pass_for_the_node(tmp_path: Path) -> None:
    """It holds the port; the visitor's TLS is for the node's key."""
    async with reached(tmp_path) as (lending, behind, _):
        with pytest.raises(WrongTlsKey):
            await behind.channel(lending.endpoint, lending.identity.spki_sha256).open()


async def ask(lending: Lending, operator: Operator, session: int) -> Visited:
    patience = ChannelPatience(connect=2, request=5)
    lender = lending.lender
    channel = Channel(
        lender.endpoint, lender.tls_key_hash, operator, lender.operator, patience=patience, path=TUNNEL_PATH
    )
    try:
        answer = (await channel.request(Attend(session))).header
    finally:
        await channel.close()
    assert isinstance(answer, Visited)
    return answer


async def test_an_impostor_gets_no_tunnel(tmp_path: Path) -> None:
    stranger = Operator(b"\x09" * 32, DOMAIN)
    async with reached(tmp_path) as (lending, behind, _):
        with pytest.raises(RemoteFailure, match="not_authorised"):
            await ask(lending, IMPOSTOR, 2**62)
        with pytest.raises(RemoteFailure, match="tunnel_refused"):
            await ask(lending, stranger, 2**62)
        channel = behind.channel(lending.endpoint)
        assert (await channel.request(TASK, b"mine")).header == Received(positions=4)
        await channel.close()


async def test_a_ticket_is_good_once_and_for_seconds(tmp_path: Path) -> None:
    lending = Lending(tmp_path, replace(QUICK, arrival=3.0))
    async with lending.serving():
        assert (await ask(lending, NODE, 1)).tickets == ()
        asking = asyncio.create_task(ask(lending, NODE, 1))
        reader, writer = await asyncio.open_connection("127.0.0.1", lending.port)
        (ticket,) = (await asking).tickets

        async def fetch(shown: str) -> Any:
            address = lending.lender.endpoint.replace("https", "wss") + f"{TUNNEL_PATH}/{shown}"
            return await connect(address, ssl=pinned_context(lending.identity.spki_sha256), proxy=None)

        socket = await fetch(ticket.hex())
        writer.write(b"hello")
        assert await socket.recv() == b"hello"
        await socket.send(b"and you")
        assert await reader.readexactly(7) == b"and you"
        for wrong in (ticket.hex(), "00" * 32, "no-ticket"):
            with pytest.raises(InvalidStatus, match="404"):
                await fetch(wrong)
        await socket.close()
        assert await reader.read() == b""
        again, other = await asyncio.open_connection("127.0.0.1", lending.port)
        assert await again.read() == b"", "nobody fetched it"
        for one in (writer, other):
            one.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True


async def test_visitors_are_bounded_by_their_address(tmp_path: Path) -> None:
    async with reached(tmp_path) as (lending, _, _tunnel):
        held = [await asyncio.open_connection("127.0.0.1", lending.port) for _ in range(6)]
        await eventually(lambda: lending.tunnels.visitors == QUICK.visitors_per_customer)
        for reader, _writer in held[4:]:
            assert await ended(reader)
        for _reader, writer in held:
            writer.close()


async def test_visitors_are_bounded_in_all(tmp_path: Path) -> None:
    async with reached(tmp_path, replace(QUICK, visitors_in_all=2)) as (lending, _, _tunnel):
        held = [await asyncio.open_connection("127.0.0.1", lending.port) for _ in range(3)]
        assert await ended(held[2][0])
        assert lending.tunnels.visitors == 2
        for _reader, writer in held:
            writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("handshake", [True, False], ids=["says nothing", "ends no handshake"])
async def test_a_crowd_of_visitors_that_say_nothing_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handshake: bool
) -> None:
    """From four addresses it could take all places of an endpoint. The node, which sees who waits, gives them back."""
    monkeypatch.setattr(https, "HEADER_SECONDS", 600.0)
    monkeypatch.setattr("troth.transport.server.HANDSHAKE_SECONDS", 600.0)
    async with reached(tmp_path, replace(TunnelLimits(), hold=0.5)) as (lending, behind, _tunnel):
        channel = behind.channel(lending.endpoint)
        assert (await channel.request(TASK, b"early")).header == Received(positions=5)
        context = pinned_context(behind.identity.spki_sha256) if handshake else None
        held = []
        for number in range(2 * VISITORS_LIMIT):
            # Who finds no place is cut off, and comes again.
            with suppress(OSError):
                held.append(await visit(lending, f"127.0.0.{2 + number % 4}", context))
        later = behind.channel(lending.endpoint)
        assert (await later.request(TASK, b"late")).header == Received(positions=4)
        assert (await channel.request(TASK, b"still")).header == Received(positions=5)
        for writer in held:
            writer.transport.abort()
        for one in (channel, later):
            await one.close()


async def visit(lending: Lending, source: str, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
    name = None if context is None else ""
    place = ("127.0.0.1", lending.port)
    _, writer = await asyncio.open_connection(*place, local_addr=(source, 0), ssl=context, server_hostname=name)
    return writer


async def test_a_later_process_of_a_node_replaces_an_earlier_one(tmp_path: Path) -> None:
    async with reached(tmp_path) as (lending, behind, former):
        channel = behind.channel(lending.endpoint)
        await channel.request(TASK, b"before")
        later = Tunnel(NODE, lambda: lending.lender, "127.0.0.1")
        later.start(behind.server.port)
        await eventually(lambda: "started later" in former.trouble)
        await eventually(lambda: later.trouble == "")
        await eventually(lambda: not channel.connected)
        await former.close()
        assert (await channel.request(TASK, b"after")).header == Received(positions=5)
        await channel.close()
        await later.close()


async def test_a_port_that_an_earlier_process_could_not_have_is_left_to_the_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lending, start, failing, calls = Lending(tmp_path), asyncio.start_server, asyncio.Event(), 0

    async def slow_at_first(*options: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            await failing.wait()
            raise OSError("the port is taken")
        return await start(*options, **more)

    monkeypatch.setattr("troth.transport.tunnel_server.asyncio.start_server", slow_at_first)
    async with lending.tunnels:
        earlier = asyncio.create_task(lending.tunnels._lend(NODE.address, lending.port, 1))
        await asyncio.sleep(0)
        later = await lending.tunnels._lend(NODE.address, lending.port, 2)
        failing.set()
        with pytest.raises(TunnelRefused, match="cannot listen"):
            await earlier
        assert lending.lets_in()
        assert await lending.tunnels._lend(NODE.address, lending.port, 2) is later


async def test_the_port_is_closed_when_the_node_is_gone(tmp_path: Path) -> None:
    async with reached(tmp_path) as (lending, behind, tunnel):
        await tunnel.close()
        await eventually(lambda: not lending.lets_in())
        with pytest.raises(ChannelUnavailable):
            await behind.channel(lending.endpoint).open()


async def test_a_lender_that_comes_back_is_attended_again(tmp_path: Path) -> None:
    lending, behind = Lending(tmp_path / "lender", QUICK), Behind(tmp_path / "node")
    on_chain: list[Lender] = []
    tunnel = Tunnel(NODE, lambda: on_chain[0], "127.0.0.1")
    async with serving(behind.server):
        async with lending.serving():
            on_chain.append(lending.lender)
            port = lending.server.port
            tunnel.start(behind.server.port)
            await lending.attended()
        await eventually(lambda: "broken" in tunnel.trouble)
        async with lending.serving(port):
            await lending.attended()
            await eventually(lambda: tunnel.trouble == "")
            channel = behind.channel(lending.endpoint)
            assert (await channel.request(TASK, b"back")).header == Received(positions=4)
            await channel.close()
        await tunnel.close()


async def test_a_lender_that_is_not_registered_is_named(tmp_path: Path) -> None:
    tunnel = Tunnel(NODE, lambda: None, "127.0.0.1")
    tunnel.start(1)
    await eventually(lambda: "not registered" in tunnel.trouble)
    await tunnel.close()


async def test_a_reader_that_does_not_read_holds_its_writer_up(tmp_path: Path) -> None:
    """What the node says waits at the node, not in the lender's memory."""
    lending, sent = Lending(tmp_path, QUICK), 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
                sent += 65536
        except OSError:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with lending.serving():
        tunnel = Tunnel(NODE, lambda: lending.lender, "127.0.0.1")
        tunnel.start(server.sockets[0].getsockname()[1])
        await lending.attended()
        _, writer = await asyncio.open_connection("127.0.0.1", lending.port, limit=1024)
        await eventually(lambda: sent > 0)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.5)
        assert sent < 64 * 2**20, "the buffers of six sockets, which the system sizes"
        writer.close()
        await tunnel.close()
    server.close()


async def test_an_open_tunnel_is_no_channel(tmp_path: Path) -> None:
    """A node's signed greeting opens the tunnel's line alone; orders are not taken there."""
    async with reached(tmp_path) as (lending, _, _tunnel):
        lender = lending.lender
        channel = Channel(lender.endpoint, lender.tls_key_hash, NODE, lender.operator, path=TUNNEL_PATH)
        with pytest.raises(OverlayError, match="requests only"):
            await channel.request(TASK)
        await channel.close()
