"""What the driver and a node's process say to each other, and the line between them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import TypeAlias

import msgspec

_LENGTH = struct.Struct(">I")
_LONGEST = 1 << 20


class Ready(msgspec.Struct, tag=True, frozen=True):
    """A node's engine runs, and it listens. `pace`: seconds of a prompt token, as it was measured at the start."""

    number: int
    address: str
    endpoint: str
    tls_key_hash: bytes
    pace: float


class Members(msgspec.Struct, tag=True, frozen=True):
    """Who is in the group, the one that is told included."""

    members: tuple[Ready, ...]


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Empty the cache and join a new group. `before`: a workload whose prompts the Sentry saw a round before."""

    policy: str
    before: str
    seed: int


class Look(msgspec.Struct, tag=True, frozen=True):
    """What are the names, and how many others are heard? Answer: Named."""


class Named(msgspec.Struct, tag=True, frozen=True):
    """`names` tells the group's names of this moment; `alive`: other members that are heard."""

    names: bytes
    alive: int


class Ask(msgspec.Struct, tag=True, frozen=True):
    """A user's request, which enters at the node that gets this. Answers: some Written, or Refused."""

    number: int
    prompt: tuple[int, ...]
    tokens: int


class Written(msgspec.Struct, tag=True, frozen=True):
    """So many more tokens of a request's answer came from the node `served`; `finished`: these were the last."""

    number: int
    served: str
    tokens: int
    finished: bool


class Refused(msgspec.Struct, tag=True, frozen=True):
    """No node has room: ask again after so many seconds."""

    number: int
    retry_after: float


class Failed(msgspec.Struct, tag=True, frozen=True):
    """This node cannot go on."""

    reason: str


class Finish(msgspec.Struct, tag=True, frozen=True):
    """Leave the group. Answer: Counted."""


class Counted(msgspec.Struct, tag=True, frozen=True):
    """Since Begin: tokens by the engine's own counters, requests served, blocks stored, bytes heard from the others in
    Tell with names (`update_bytes`) and without (`heartbeat_bytes`)."""

    prompt_tokens: int
    cached_tokens: int
    served: int
    stored_blocks: int
    update_bytes: int
    heartbeat_bytes: int


ToNode: TypeAlias = Members | Begin | Look | Ask | Finish
ToDriver: TypeAlias = Ready | Named | Written | Refused | Failed | Counted


class Line:
    """Length-prefixed msgpack on a local socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: ToNode | ToDriver) -> None:
        """Send one; raises ConnectionError once the other side is gone."""
        content = msgspec.msgpack.encode(message)
        self._writer.write(_LENGTH.pack(len(content)) + content)
        await self._writer.drain()

    async def to_node(self) -> AsyncIterator[ToNode]:
        """What the driver says, until it is gone."""
        async for content in self._contents():
            yield msgspec.msgpack.decode(content, type=ToNode)

    async def to_driver(self) -> AsyncIterator[ToDriver]:
        """What the node says, until it is gone."""
        async for content in self._contents():
            yield msgspec.msgpack.decode(content, type=ToDriver)

    def close(self) -> None:
        """Hang up: the other side's iteration ends."""
        self._writer.close()

    async def _contents(self) -> AsyncIterator[bytes]:
        while True:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > _LONGEST:
                    raise ValueError(f"a message of {length} bytes on the driver's line")
                yield await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
