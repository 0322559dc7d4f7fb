"""The channel over real sockets and TLS: what arrives, what is refused, and in whose words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from support.waiting import eventually
from websockets.protocol import State

from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.protocol.wire import ORDER_REQUESTS, Dismiss, OrderReply, OrderRequest, Received, Released
from troth.transport import https
from troth.transport.channel import UNASKED_LIMIT, Channel, ChannelPatience
from troth.transport.channel_server import ChannelLimits, ChannelServer, Handler
from troth.transport.envelope import ReplayWindow
from troth.transport.errors import (
    ChannelTimeout,
    ChannelUnavailable,
    FrameTooLarge,
    OverlayError,
    RemoteFailure,
    WrongTlsKey,
)
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import Operator, TlsIdentity, create_identity
from troth.transport.listener import TlsListener
from troth.transport.server import TlsServer, serving
from troth.transport.tls import pinned_context

DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
NODE = Operator(b"\x01" * 32, DOMAIN)
SCHEDULER = Operator(b"\x02" * 32, DOMAIN)
STRANGER = Operator(b"\x03" * 32, DOMAIN)
TASK = Dismiss(order=b"\x07" * 32)


async def echo(sender: Address, header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
    assert sender == SCHEDULER.address
    assert isinstance(header, Dismiss)
    return Received(positions=len(payload)), bytes(payload)


class Endpoint:
    def __init__(self, server: TlsServer, identity: TlsIdentity, channels: ChannelServer) -> None:
        self.server = server
        self.identity = identity
        self.channels = channels

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    async def connect(
        self, operator: Operator = SCHEDULER, pin: bytes | None = None, patience: ChannelPatience | None = None
    ) -> Channel:
        return await Channel.connect(
            self.url, pin or self.identity.spki_sha256, operator, NODE.address, patience=patience
        )


@asynccontextmanager
async def endpoint(
    folder: Path, handler: Handler = echo, limits: ChannelLimits | None = None, clock: Callable[[], float] | None = None
) -> AsyncIterator[Endpoint]:
    identity = create_identity(folder)
    app = FastAPI()
    channels = ChannelServer(
        NODE,
        handler,
        lambda sender: sender == SCHEDULER.address,
        limits=limits,
        clock=clock,
        requests=ORDER_REQUESTS,
    )
    channels.mount(app)

    @app.get("/v1/info")
    async def info() -> dict[str, str]:
        return {"operator": NODE.address}

    server = TlsServer(app, identity, "127.0.0.1", 0, drain=channels.drain, limits=limits)
    async with serving(server):
        yield Endpoint(server, identity, channels)


async def test_a_request_gets_its_answer_with_the_payload(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        channel = await node.connect()
        reply = await channel.request(TASK, b"r" * 2304)
        assert reply.header == Received(positions=2304)
        assert bytes(reply.payload) == b"r" * 2304
        await channel.close()


async def test_a_megabyte_travels_whole(tmp_path: Path) -> None:
    rows = bytes(range(256)) * 8192
    async with endpoint(tmp_path) as node:
        channel = await node.connect()
        assert bytes((await channel.request(TASK, rows)).payload) == rows
        await channel.close()


async def test_concurrent_requests_are_answered_in_any_order(tmp_path: Path) -> None:
    release_first = asyncio.Event()

    async def out_of_order(sender: Address, header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        if bytes(payload) == b"first":
            await release_first.wait()
        return Released(), bytes(payload)

    async with endpoint(tmp_path, out_of_order) as node:
        channel = await node.connect()
        first = asyncio.create_task(channel.request(TASK, b"first"))
        assert bytes((await channel.request(TASK, b"second")).payload) == b"second"
        assert not first.done()
        release_first.set()
        assert bytes((await first).payload) == b"first"
        await channel.close()


async def test_another_tls_key_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        with pytest.raises(WrongTlsKey, match="registered is " + "aa" * 32):
            await node.connect(pin=b"\xaa" * 32)
        async with pinned_client(node.url, b"\xaa" * 32) as client:
            with pytest.raises(WrongTlsKey), naming_errors(node.url):
                await client.get("/v1/info")


async def test_https_with_the_right_pin(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node, pinned_client(node.url, node.identity.spki_sha256) as client:
        assert (await client.get("/v1/info")).json() == {"operator": NODE.address}


async def test_a_stranger_is_turned_away_with_a_reason(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        with pytest.raises(RemoteFailure) as refusal:
            await node.connect(STRANGER)
        assert refusal.value.remote_code == "not_authorised"
        assert STRANGER.address in refusal.value.message


async def test_a_wrong_clock_is_named_with_the_difference(tmp_path: Path) -> None:
    async with endpoint(tmp_path, clock=lambda: time.time() + 75) as node:
        with pytest.raises(RemoteFailure, match=r"7[45] s behind") as refusal:
            await node.connect()
        assert refusal.value.remote_code == "clock_skew"


async def test_a_signature_for_another_contract_is_refused(tmp_path: Path) -> None:
    elsewhere = Operator(SCHEDULER.secret, Domain(1, DOMAIN.contract))
    async with endpoint(tmp_path) as node:
        with pytest.raises(RemoteFailure) as refusal:
            await node.connect(elsewhere)
        assert refusal.value.remote_code == "wrong_signer"


async def test_an_error_of_ours_reaches_the_peer_and_another_one_stays_inside(tmp_path: Path) -> None:
    async def failing(sender: Address, header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        if len(payload):
            raise OverlayError("The slice is not loaded", "[0, 15)", "Ask another node.")
        raise RuntimeError("secret path /home/operator")

    async with endpoint(tmp_path, failing) as node:
        channel = await node.connect()
        with pytest.raises(RemoteFailure, match="The slice is not loaded"):
            await channel.request(TASK, b"x")
        with pytest.raises(RemoteFailure) as inside:
            await channel.request(TASK)
        assert inside.value.remote_code == "internal"
        assert "operator" not in str(inside.value).replace("its operator", "")
        await channel.close()


async def test_over_the_limit_is_refused_and_the_connection_lives_on(tmp_path: Path) -> None:
    release, working = asyncio.Event(), asyncio.Event()

    async def waiting(sender: Address, header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        working.set()
        await release.wait()
        return Released(), b""

    async with endpoint(tmp_path, waiting, ChannelLimits(in_flight_per_connection=1)) as node:
        channel = await node.connect()
        started = asyncio.create_task(channel.request(TASK))
        await working.wait()
        with pytest.raises(RemoteFailure) as busy:
            await channel.request(TASK)
        assert busy.value.remote_code == "overloaded"
        release.set()
        assert (await started).header == Released()
        await channel.close()


async def test_a_frame_over_the_limit(tmp_path: Path) -> None:
    async with endpoint(tmp_path, limits=ChannelLimits(frame=4096)) as node:
        small = await node.connect(patience=ChannelPatience(frame=4096))
        with pytest.raises(FrameTooLarge, match="4096"):
            await small.request(TASK, b"r" * 5000)
        large = await node.connect()
        with pytest.raises(ChannelUnavailable):
            await large.request(TASK, b"r" * 5000)
        await small.close()
        await large.close()


async def test_silence_ends_in_a_timeout_and_the_next_request_works(tmp_path: Path) -> None:
    async def slow_then_fast(sender: Address, header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        if not payload:
            await asyncio.Event().wait()
        return Released(), b""

    async with endpoint(tmp_path, slow_then_fast) as node:
        node.server._drain = None  # the first request never ends
        channel = await node.connect()
        with pytest.raises(ChannelTimeout, match=r"within 0\.05 s"):
            await channel.request(TASK, timeout=0.05)
        assert (await channel.request(TASK, b"x")).header == Released()
        await channel.close()


async def test_a_lost_peer_fails_at_once_and_a_returned_one_is_found(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        channel = await node.connect(patience=ChannelPatience(first_pause=0.01, longest_pause=0.01))
        await channel.request(TASK)
        port = node.server.port
        await node.server.stop()
        with pytest.raises(ChannelUnavailable):
            await channel.request(TASK)
        assert not channel.connected
        app = FastAPI()
        node.channels.mount(app)
        async with serving(TlsServer(app, node.identity, "127.0.0.1", port)):
            deadline = asyncio.get_running_loop().time() + 60
            while not channel.connected:
                assert asyncio.get_running_loop().time() < deadline
                try:
                    await channel.request(TASK)
                except ChannelUnavailable:
                    await asyncio.sleep(0.01)
            await channel.close()


async def test_who_says_so_awaits_the_next_attempt(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        channel = await node.connect(patience=ChannelPatience(first_pause=2.0, longest_pause=2.0))
        port = node.server.port
        await node.server.stop()
        with pytest.raises(ChannelUnavailable):
            await channel.request(TASK)
        with pytest.raises(ChannelUnavailable, match="cannot be reached"):
            await channel.open(wait=60.0)
        app = FastAPI()
        node.channels.mount(app)
        async with serving(TlsServer(app, node.identity, "127.0.0.1", port)):
            with pytest.raises(ChannelUnavailable, match="next attempt in"):
                await channel.open(wait=0.1)
            await channel.open(wait=60.0)
            assert channel.connected
            await channel.close()


async def test_a_server_stops_while_a_peer_is_leaving(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        channel = await node.connect()
        await channel.request(TASK)
        (connection,) = node.server._server.server_state.connections
        # As when its closing word has arrived, and its end of the connection has not.
        connection.conn.state = State.CLOSING  # type: ignore[union-attr]
        await node.server.stop()
        await channel.close()


async def test_a_closed_channel_says_so(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as node:
        channel = await node.connect()
        await channel.close()
        with pytest.raises(ChannelUnavailable, match="was closed"):
            await channel.request(TASK)


async def test_a_recorded_frame_cannot_be_played_again(tmp_path: Path) -> None:
    sent: list[bytes] = []
    async with endpoint(tmp_path) as node:
        channel = await node.connect()
        socket = await channel.open()
        original = socket.send

        async def recording(frame: bytes) -> None:
            sent.append(frame)
            await original(frame)

        socket.send = recording  # type: ignore[method-assign, assignment]
        await channel.request(TASK)
        await original(sent[0])
        await socket.wait_closed()
        assert socket.close_code == 1008
        assert "seen before" in (socket.close_reason or "")
        await channel.close()


async def test_strangers_cannot_use_up_the_replay_window(tmp_path: Path) -> None:
    """A full window turns newcomers away; only who may connect has a place in it."""
    async with endpoint(tmp_path) as served:
        served.channels._receiver._window = ReplayWindow(seconds=120, senders=1)
        with pytest.raises(RemoteFailure):
            await served.connect(STRANGER)
        channel = await served.connect()
        assert isinstance((await channel.request(TASK)).header, Received)
        await channel.close()


async def raw_connection(served: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = pinned_context(served.identity.spki_sha256)
    return await asyncio.open_connection("127.0.0.1", served.server.port, ssl=context)


async def closed_by_peer(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("drops", [b"", b"GET /v1/info HTTP/1.1\r\nhost: x\r\nslow: "])
async def test_who_does_not_ask_anything_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: bytes
) -> None:
    monkeypatch.setattr(https, "HEADER_SECONDS", 1.0)
    async with endpoint(tmp_path) as served:
        channel = await served.connect()
        reader, writer = await raw_connection(served)
        writer.write(drops)
        assert await closed_by_peer(reader)
        # An open channel is no request that is late.
        assert isinstance((await channel.request(TASK)).header, Received)
        await channel.close()


async def test_a_second_request_on_a_connection_is_not_waited_for_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "HEADER_SECONDS", 1.0)
    async with endpoint(tmp_path) as served:
        reader, writer = await raw_connection(served)
        writer.write(b"GET /v1/info HTTP/1.1\r\nhost: x\r\n\r\nGET /v1/in")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        assert await closed_by_peer(reader)


async def test_one_host_cannot_take_all_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "CONNECTIONS_PER_HOST", 3)
    async with endpoint(tmp_path) as served:
        held = [await raw_connection(served) for _ in range(3)]
        reader, _ = await raw_connection(served)
        assert await closed_by_peer(reader)
        held[0][1].write(b"GET /v1/info HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await held[0][0].readuntil(b"}")).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()


async def test_who_never_ends_a_handshake_holds_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-open connections are bounded by host before TLS costs anything, and cut off after a few seconds."""
    monkeypatch.setattr("troth.transport.server.HANDSHAKE_SECONDS", 2.0)
    monkeypatch.setattr("troth.transport.server.CONNECTIONS_PER_HOST", 3)
    async with endpoint(tmp_path) as served:
        place = ("127.0.0.1", served.server.port)
        held = [await asyncio.open_connection(*place) for _ in range(3)]
        turned_away, _ = await asyncio.open_connection(*place)
        assert await closed_by_peer(turned_away)
        assert not any(reader.at_eof() for reader, _ in held)
        assert [await closed_by_peer(reader) for reader, _ in held] == [True] * 3
        assert isinstance((await (await served.connect()).request(TASK)).header, Received)
        for _, writer in held:
            writer.close()


async def test_of_all_handshakes_the_oldest_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many hosts that hold all places keep nobody out: whoever is honest needs a place for a moment."""
    monkeypatch.setattr("troth.transport.server.CONNECTIONS", 3)
    monkeypatch.setattr("troth.transport.server.HANDSHAKE_SECONDS", 600.0)
    async with endpoint(tmp_path) as served:
        place = ("127.0.0.1", served.server.port)
        held = []
        for number in range(1, 4):
            held.append(await asyncio.open_connection(*place))
            await eventually(lambda number=number: listener_of(served).handshakes == number)
        assert isinstance((await (await served.connect()).request(TASK)).header, Received)
        assert await closed_by_peer(held[0][0])
        assert not any(reader.at_eof() for reader, _ in held[1:])
        for _, writer in held:
            writer.close()


def listener_of(served: Endpoint) -> TlsListener:
    (listener,) = served.server._server.servers
    assert isinstance(listener, TlsListener)
    return listener


async def test_handshakes_that_go_on_end_with_their_server(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(b"\x16\x03\x01")
        await eventually(lambda: listener_of(served).handshakes == 1)
    assert await closed_by_peer(reader)
    writer.close()


async def test_one_sender_cannot_take_all_connections_or_all_work(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
        await gate.wait()
        return Released(), b""

    limits = ChannelLimits(connections_per_sender=2, in_flight_per_sender=2)
    async with endpoint(tmp_path, wait, limits) as served:
        first, second = await served.connect(), await served.connect()
        with pytest.raises(RemoteFailure, match="connections of"):
            await served.connect()
        waiting = [asyncio.create_task(channel.request(TASK)) for channel in (first, second)]
        await eventually(lambda: served.channels.in_flight == 2)
        with pytest.raises(RemoteFailure, match="in flight"):
            await first.request(TASK)
        gate.set()
        await asyncio.gather(*waiting)
        await asyncio.gather(first.close(), second.close())


async def test_the_bytes_of_all_requests_together_are_bounded(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
        await gate.wait()
        return Released(), b""

    async with endpoint(tmp_path, wait, ChannelLimits(in_flight_bytes=3000)) as served:
        channel = await served.connect()
        waiting = asyncio.create_task(channel.request(TASK, bytes(2000)))
        await eventually(lambda: served.channels.in_flight == 1)
        with pytest.raises(RemoteFailure, match="in flight"):
            await channel.request(TASK, bytes(2000))
        gate.set()
        await waiting
        await channel.close()


async def test_answers_that_nobody_asked_for_end_the_connection(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def late(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
        await gate.wait()
        return Released(), b""

    limits = ChannelLimits(in_flight_per_connection=200, in_flight_per_sender=200)
    async with endpoint(tmp_path, late, limits) as served:
        channel = await served.connect()
        asked = [channel.request(TASK, timeout=2.0) for _ in range(UNASKED_LIMIT + 1)]
        assert all(isinstance(error, ChannelTimeout) for error in await asyncio.gather(*asked, return_exceptions=True))
        await eventually(lambda: served.channels.in_flight == len(asked))
        gate.set()
        await eventually(lambda: not channel.connected)
        assert isinstance((await channel.request(TASK)).header, Released)
        await channel.close()


@pytest.mark.parametrize(
    "address", ["[::1", "127.0.0.1:99999", "127.0.0.1:port", "x" * 80, "a b", "..", "user:secret@[bad]/", "\u2603" * 70]
)
async def test_an_address_that_is_none_is_a_peer_that_is_away(address: str) -> None:
    """Endpoints come from registrations: whoever registers nonsense must not break a task of others."""
    channel = Channel(f"https://{address}", bytes(32), SCHEDULER, NODE.address)
    with pytest.raises(ChannelUnavailable):
        await channel.open()
    with pytest.raises(ChannelUnavailable), naming_errors(address):
        async with pinned_client(f"https://{address}", bytes(32)) as client:
            await client.get("/v1/info")
