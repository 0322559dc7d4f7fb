"""Tells the other members, each on a channel of its own: every second a word, every five seconds one with names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from troth.node.group.membership import Peer
from troth.overlay.channel import Channel, Patience
from troth.overlay.errors import ChannelUnavailable, OverlayError
from troth.overlay.hash_radix.announcing import HEARTBEAT, INTERVAL
from troth.overlay.operator import Operator
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address
from troth.protocol.wire_group import Tell, Told

log = logging.getLogger(__name__)

PATH = "/v1/group"
LONGEST_PAUSE = 30.0
"""Seconds until a member that does not answer is tried again, unless it is heard before."""
PATIENCE = Patience(connect=5.0, request=5.0, frame=2**20, longest_pause=LONGEST_PAUSE / 4)
CLOSING_SECONDS = 2.0


class Words(Protocol):
    """What is to be said now."""

    def header(self) -> Tell:
        """Share and proposed lengths."""

    def heartbeat(self) -> bytes:
        """The load."""

    def whole(self) -> bytes:
        """All that was said so far."""

    def heard(self, name: Address, told: Told, seconds: float | None) -> None:
        """A member's answer; `seconds` it took, where nothing but the way took time."""


@dataclass(slots=True)
class _Line:
    """One member. `due` waits to be said; after a miss it is `whole`, all at once."""

    peer: Peer
    channel: Channel
    due: bytes = b""
    whole: bool = False
    said_whole: float = float("-inf")
    failures: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Telling:
    """Keeps a line to each member; one message at a time on each."""

    def __init__(self, operator: Operator, words: Words) -> None:
        self._operator = operator
        self._words = words
        self._lines: dict[Address, _Line] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, peers: Mapping[Address, Peer]) -> None:
        """Open a line to who is new or listens elsewhere now, and drop who left."""
        for name in [name for name, line in self._lines.items() if peers.get(name) != line.peer]:
            closing = asyncio.create_task(_end(self._lines.pop(name)))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for name in peers.keys() - self._lines.keys():
            try:
                channel = Channel(
                    peers[name].endpoint, peers[name].tls_key_hash, self._operator, name, patience=PATIENCE, path=PATH
                )
            except OverlayError as error:
                log.debug("%s cannot be told anything: %s", name, error)
                continue
            self._lines[name] = _Line(peers[name], channel)
        for name, line in self._lines.items():
            if line.task is None or line.task.done():
                line.task = asyncio.create_task(self._tell(name, line))

    def announce(self, update: bytes) -> None:
        """An update for all; who did not get the one before gets all at once instead."""
        for line in self._lines.values():
            line.whole = line.whole or bool(line.due)
            line.due = b"" if line.whole else update

    def wake(self, name: Address) -> None:
        """This member was heard: it can be tried again if it was given up for a while."""
        if name in self._lines:
            self._lines[name].heard.set()

    def channel(self, name: Address) -> Channel:
        """The channel to a member; raises ChannelUnavailable for who is none."""
        if name not in self._lines:
            raise ChannelUnavailable("No member of this node's group", name, "Choose another node.")
        return self._lines[name].channel

    async def close(self) -> None:
        """End all lines."""
        self.follow({})
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _tell(self, name: Address, line: _Line) -> None:
        while True:
            try:
                await self._say(name, line)
                line.failures = 0
            except (OverlayError, ProtocolError) as error:
                log.debug("%s was not told: %s", name, error)
                line.failures += 1
            line.heard.clear()
            await asyncio.sleep(HEARTBEAT)
            await _within(line.heard.wait, min(LONGEST_PAUSE, HEARTBEAT * 2**line.failures) - HEARTBEAT)

    async def _say(self, name: Address, line: _Line) -> None:
        content, names = self._content(line)
        before = time.monotonic()
        frame = await line.channel.request(self._words.header(), content)
        if not isinstance(frame.header, Told):
            raise ProtocolError("A member answered something else", type(frame.header).__name__, "Tell it again.")
        line.whole = line.whole or frame.header.whole
        self._words.heard(name, frame.header, None if names else time.monotonic() - before)

    def _content(self, line: _Line) -> tuple[bytes, bool]:
        """What to say to a member now, and whether names are in it."""
        now = time.monotonic()
        if line.whole and now - line.said_whole >= INTERVAL:
            line.whole, line.due, line.said_whole = False, b"", now
            return self._words.whole(), True
        content, line.due = line.due, b""
        return content or self._words.heartbeat(), bool(content)


async def _within(wait: Callable[[], Awaitable[object]], seconds: float) -> None:
    if seconds > 0:
        try:
            await asyncio.wait_for(wait(), seconds)
        except TimeoutError:
            return


async def _end(line: _Line) -> None:
    if line.task is not None:
        line.task.cancel()
        await asyncio.gather(line.task, return_exceptions=True)
    try:
        await asyncio.wait_for(line.channel.close(), CLOSING_SECONDS)
    except (TimeoutError, OverlayError):
        log.debug("the channel to %s did not close in time", line.peer.operator)
