"""Tells the other members, each on a channel of its own: every second a word, every five seconds one with names.

After a burst of requests the word comes before its time. Other entries must hear of the burst while they still choose.
For each member it keeps what that one is still to be told, and when it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from troth.node.group.membership import Peer
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address
from troth.protocol.wire_group import Tell, Told
from troth.routing.prefixes.announcing import BURST, HEARTBEAT, INTERVAL, SOONEST
from troth.routing.prefixes.errors import PrefixError
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.errors import ChannelUnavailable, OverlayError
from troth.transport.identity import Operator

LONGEST_PAUSE = 30.0
"""Seconds until a member that does not answer is tried again, unless it is heard before."""
log = logging.getLogger(__name__)
PATH = "/v1/group"
PATIENCE = ChannelPatience(connect=5.0, request=5.0, frame=2**20, longest_pause=LONGEST_PAUSE / 4)
CLOSING_SECONDS = 2.0


class UpdateSource(Protocol):
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
class MemberLine:
    """One member's. `now` in seconds, never falling."""

    failures: int = 0
    _due: bytes = b""
    _whole: bool = False
    _said_whole: float = float("-inf")
    _new: int = 0
    _heard: asyncio.Event = field(default_factory=asyncio.Event)
    _burst: asyncio.Event = field(default_factory=asyncio.Event)

    def announce(self, update: bytes) -> None:
        """An update waits to be said; who did not get the one before gets all at once instead."""
        self._whole = self._whole or bool(self._due)
        self._due = b"" if self._whole else update

    def ask_whole(self) -> None:
        """The member misses something."""
        self._whole = True

    def took(self) -> None:
        """This node has one more request than the member was told."""
        self._new += 1
        if self._new >= BURST:
            self._burst.set()

    def content(self, words: UpdateSource, now: float) -> tuple[bytes, bool]:
        """What to say now, and whether names are in it. All at once goes out once an interval, whoever asks."""
        self._new = 0
        self._burst.clear()
        if self._whole and now - self._said_whole >= INTERVAL:
            self._whole, self._due, self._said_whole = False, b"", now
            return words.whole(), True
        update, self._due = self._due, b""
        return update or words.heartbeat(), bool(update)

    def wake(self) -> None:
        """The member was heard."""
        self._heard.set()

    async def pause(self) -> None:
        """Until the next word: a burst of requests shortens it.

        It is longer after failures, but no longer than until the member is heard.
        """
        self._heard.clear()
        await asyncio.sleep(SOONEST)
        await _within(HEARTBEAT - SOONEST, self._burst)
        more = min(LONGEST_PAUSE, HEARTBEAT * 2 ** min(self.failures, 32)) - HEARTBEAT
        if more > 0:
            await _within(more, self._heard)


async def _within(seconds: float, event: asyncio.Event) -> None:
    # Not wait_for: in Python 3.11 it forgets a cancellation that comes with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@dataclass(slots=True)
class _Ear:
    """Another member, and the way there."""

    peer: Peer
    channel: Channel
    line: MemberLine = field(default_factory=MemberLine)
    task: asyncio.Task[None] | None = None


class GroupTelling:
    """Keeps a channel to each member; one message at a time on each."""

    def __init__(self, operator: Operator, words: UpdateSource) -> None:
        self._operator = operator
        self._words = words
        self._ears: dict[Address, _Ear] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, peers: Mapping[Address, Peer]) -> None:
        """Begin with who is new or listens elsewhere now, and end with who left."""
        for name in [name for name, ear in self._ears.items() if peers.get(name) != ear.peer]:
            closing = asyncio.create_task(_end(self._ears.pop(name)))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for name in peers.keys() - self._ears.keys():
            peer = peers[name]
            try:
                channel = Channel(peer.endpoint, peer.tls_key_hash, self._operator, name, patience=PATIENCE, path=PATH)
            except OverlayError as error:
                log.debug("%s cannot be told anything: %s", name, error)
                continue
            self._ears[name] = _Ear(peer, channel)
        for name, ear in self._ears.items():
            if ear.task is None or ear.task.done():
                ear.task = asyncio.create_task(self._tell(name, ear))

    def announce(self, update: bytes) -> None:
        """An update for all."""
        for ear in self._ears.values():
            ear.line.announce(update)

    def took(self) -> None:
        """A request begins here."""
        for ear in self._ears.values():
            ear.line.took()

    def wake(self, name: Address) -> None:
        """This member was heard: it can be tried again if it was given up for a while."""
        if name in self._ears:
            self._ears[name].line.wake()

    def channel(self, name: Address) -> Channel:
        """The channel to a member; raises ChannelUnavailable for who is none."""
        if name not in self._ears:
            raise ChannelUnavailable("No member of this node's group", name, "Choose another node.")
        return self._ears[name].channel

    async def close(self) -> None:
        """End all channels."""
        self.follow({})
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _tell(self, name: Address, ear: _Ear) -> None:
        while True:
            try:
                await self._say(name, ear)
                ear.line.failures = 0
            except (OverlayError, PrefixError, ProtocolError) as error:
                log.debug("%s was not told: %s", name, error)
                ear.line.failures += 1
            await ear.line.pause()

    async def _say(self, name: Address, ear: _Ear) -> None:
        before = time.monotonic()
        content, names = ear.line.content(self._words, before)
        frame = await ear.channel.request(self._words.header(), content)
        if not isinstance(frame.header, Told):
            raise ProtocolError("A member answered something else", type(frame.header).__name__, "Tell it again.")
        if frame.header.whole:
            ear.line.ask_whole()
        self._words.heard(name, frame.header, None if names else time.monotonic() - before)


async def _end(ear: _Ear) -> None:
    if ear.task is not None:
        ear.task.cancel()
        await asyncio.gather(ear.task, return_exceptions=True)
    try:
        async with asyncio.timeout(CLOSING_SECONDS):
            await ear.channel.close()
    except (TimeoutError, OverlayError):
        log.debug("the channel to %s did not close in time", ear.peer.operator)
