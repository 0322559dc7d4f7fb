"""Greetings and questions of a channel that come at once, and one that is closed while it connects, without sockets."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.websockets import WebSocketDisconnect
from support.lending import NODE, SCHEDULER
from support.waiting import eventually

from troth.protocol.types import ZERO_HASH, Address
from troth.protocol.wire import ORDER_REQUESTS, OrderReply, OrderRequest, Released, encode_frame
from troth.protocol.wire_market import Dismiss
from troth.transport.channel import Channel
from troth.transport.channel_server import HELLO_HEADER, ChannelLimits, ChannelServer
from troth.transport.envelope import EnvelopeKind, NonceSequence, seal
from troth.transport.errors import ChannelUnavailable


async def release(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
    return Released(), b""


class SlowSocket:
    """A websocket whose acceptance takes a turn of the loop, as one over a busy network does."""

    def __init__(self, nonce: bytes) -> None:
        hello = seal(SCHEDULER, NODE.address, EnvelopeKind.HELLO, nonce, b"", now=int(time.time()))
        self.headers = {HELLO_HEADER: f"{SCHEDULER.address} {hello.hex()}"}
        self.accepted, self.refused, self.gone = False, False, asyncio.Event()

    async def accept(self) -> None:
        await asyncio.sleep(0)
        self.accepted = True

    async def send_denial_response(self, _response: Any) -> None:
        self.refused = True

    async def receive_bytes(self) -> bytes:
        await self.gone.wait()
        raise WebSocketDisconnect


async def test_greetings_that_come_at_once_open_no_more_connections_than_there_are() -> None:
    limits = ChannelLimits(connections_per_sender=2)
    channels = ChannelServer(NODE, release, lambda _sender: True, limits=limits, requests=ORDER_REQUESTS)
    nonces = NonceSequence()
    sockets: list[Any] = [SlowSocket(nonces.next()) for _ in range(8)]
    serving_all = [asyncio.create_task(channels._accept(socket)) for socket in sockets]
    await eventually(lambda: all(socket.accepted or socket.refused for socket in sockets))
    assert (sum(one.accepted for one in sockets), sum(one.refused for one in sockets)) == (2, 6)
    for socket in sockets:
        socket.gone.set()
    await asyncio.gather(*serving_all)


class AskingSocket(SlowSocket):
    """One that asks a question once it may, and keeps what is answered."""

    def __init__(self, nonces: NonceSequence, may_ask: asyncio.Event) -> None:
        super().__init__(nonces.next())
        content = encode_frame(Dismiss(ZERO_HASH))
        self.question = seal(
            SCHEDULER, NODE.address, EnvelopeKind.REQUEST, nonces.next(), content, now=int(time.time())
        )
        self.may_ask, self.asked = may_ask, False
        self.answers: list[bytes] = []

    async def receive_bytes(self) -> bytes:
        if self.asked:
            return await super().receive_bytes()
        await self.may_ask.wait()
        self.asked = True
        return self.question

    async def send_bytes(self, frame: bytes) -> None:
        self.answers.append(frame)


async def test_questions_that_come_at_once_are_no_more_in_flight_than_there_may_be() -> None:
    under_way, most, may_answer, may_ask = 0, 0, asyncio.Event(), asyncio.Event()

    async def slowly(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await may_answer.wait()
        under_way -= 1
        return Released(), b""

    limits = ChannelLimits(in_flight=2, connections_per_sender=8)
    channels = ChannelServer(NODE, slowly, lambda _sender: True, limits=limits, requests=ORDER_REQUESTS)
    nonces = NonceSequence()
    sockets: list[Any] = [AskingSocket(nonces, may_ask) for _ in range(8)]
    serving_all = [asyncio.create_task(channels._accept(socket)) for socket in sockets]
    await eventually(lambda: all(socket.accepted for socket in sockets))
    may_ask.set()
    await eventually(lambda: sum(len(socket.answers) for socket in sockets) + under_way == 8)
    assert (most, channels.in_flight) == (2, 2)
    may_answer.set()
    await eventually(lambda: all(socket.answers for socket in sockets))
    assert (channels.in_flight, channels.in_flight_bytes) == (0, 0)
    for socket in sockets:
        socket.gone.set()
    await asyncio.gather(*serving_all)


async def test_who_asks_and_leaves_has_no_more_in_flight_than_who_stays() -> None:
    under_way, may_answer, may_ask = 0, asyncio.Event(), asyncio.Event()

    async def slowly(_sender: Address, _header: OrderRequest, _payload: memoryview) -> tuple[OrderReply, bytes]:
        nonlocal under_way
        under_way += 1
        await may_answer.wait()
        under_way -= 1
        return Released(), b""

    limits = ChannelLimits(in_flight_per_sender=2)
    channels = ChannelServer(NODE, slowly, lambda _sender: True, limits=limits, requests=ORDER_REQUESTS)
    nonces, most = NonceSequence(), 0
    may_ask.set()
    for _ in range(6):
        socket: Any = AskingSocket(nonces, may_ask)
        socket.gone.set()
        await channels._accept(socket)
        await asyncio.sleep(0.01)
        most = max(most, under_way)
    assert (most, channels.in_flight_of(SCHEDULER.address)) == (2, 2)
    draining = asyncio.create_task(channels.drain())
    await asyncio.sleep(0.01)
    assert not draining.done()  # what was begun is answered first, though nobody is there to hear it
    may_answer.set()
    await asyncio.wait_for(draining, 1)
    assert (under_way, channels.in_flight, channels.in_flight_of(SCHEDULER.address)) == (0, 0, 0)


async def test_a_channel_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    connected, socket = asyncio.Event(), AsyncMock()

    class Connecting(Channel):
        async def _dial(self) -> Any:
            await connected.wait()
            return socket

    channel = Connecting("https://localhost:1", ZERO_HASH, SCHEDULER, NODE.address)
    opening = asyncio.create_task(channel.open())
    await asyncio.sleep(0)
    await channel.close()
    connected.set()
    with pytest.raises(ChannelUnavailable, match="closed"):
        await opening
    socket.close.assert_awaited_once()
    assert not channel.connected
