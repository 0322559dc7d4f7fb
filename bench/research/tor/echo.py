"""What peers and floor are measured against: length 4 | message, answered with the message's beginning."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from support.relay_network import ANSWER_BYTES

_LENGTH = struct.Struct(">I")


def framed(message: bytes) -> bytes:
    """A message as the echo reads it."""
    return _LENGTH.pack(len(message)) + message


class Echo(asyncio.Protocol):
    """Answers each whole message with at most ANSWER_BYTES of it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._held = bytearray()

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        while len(held) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(held)[0]
            if len(held) < end:
                return
            self._transport.write(bytes(held[_LENGTH.size : min(end, _LENGTH.size + ANSWER_BYTES)]))
            del held[:end]


class Pipe(asyncio.Protocol):
    """Hands on what comes, unchanged, to `other`: one direction of a connection through a forwarding process."""

    def __init__(self, other: Callable[[], asyncio.WriteTransport]) -> None:
        self._other = other

    def data_received(self, data: bytes) -> None:
        self._other().write(data)


def serve() -> None:
    """An echoing process without TLS, as a target of Tor's exits: its argument is the port."""
    import sys

    import uvloop

    async def run() -> None:
        await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", int(sys.argv[1]))
        await asyncio.Event().wait()

    uvloop.run(run())
