"""Greetings of a channel that come at once, without sockets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.websockets import WebSocketDisconnect
from support.lending import NODE, SCHEDULER
from support.waiting import eventually

from troth.protocol.types import Address
from troth.protocol.wire import ORDER_REQUESTS, OrderReply, OrderRequest, Released
from troth.transport.channel_server import HELLO_HEADER, ChannelLimits, ChannelServer
from troth.transport.envelope import EnvelopeKind, NonceSequence, seal


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
