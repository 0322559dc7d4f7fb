"""An answer on its way: its segments as cloves over the handles that the client lent, in a bounded window.

Every segment goes out on all handles at once and any k bring it, so the answer is as fast as the k-th fastest path and
one lost path costs nothing. What is written within one turn of the event loop becomes one segment, and what is written
alone is sent at once: a token never waits for the next one. Cloves stay here until the client has acknowledged their
segment, so that a path that comes in place of a broken one can bring what the broken one did not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from troth.overlay.sessions.errors import SessionError
from troth.overlay.sessions.frames import AnswerKind
from troth.overlay.sessions.handle import Handle
from troth.overlay.sessions.messages import reply_id
from troth.overlay.sida import Sender, Threshold
from troth.overlay.sida.sending import SEGMENT_BYTES

WINDOW_SEGMENTS = 48
"""Below the 64 that a receiver gathers at a time."""
WINDOW_BYTES = 768 * 1024
"""Of content; a third of it per path, well below what a proxy queues."""

MOST_EXPANSION = 2
"""Bytes kept for each byte of a whole window."""


class Abandoned(SessionError):
    """The client does not want the answer any more, or cannot be reached."""

    code = "abandoned"


@dataclass(slots=True)
class _Sent:
    number: int
    cloves: list[bytes]
    length: int


class Reply:
    """The answer to one request. Every method belongs to one event loop."""

    def __init__(self, request: bytes, threshold: Threshold, secret: bytes) -> None:
        self._sender = Sender(threshold, secret)
        self._sender.message_id = reply_id(request)
        # What is kept are n / k bytes for each byte; a client that wants much of that gets a smaller window.
        self._most_unread = min(WINDOW_BYTES, WINDOW_BYTES * MOST_EXPANSION * threshold.k // threshold.n)
        self._expansion = threshold.n, threshold.k
        self._handles: dict[int, Handle] = {}
        self._sent: deque[_Sent] = deque()
        self._pending = bytearray()
        self._flush_due = False
        self._next = 0
        self._unread = 0
        self._room = asyncio.Event()
        self._room.set()
        self._ending = False
        self.ended = False
        self.abandoned = False
        self.unattended_since: float | None = None

    @property
    def attended(self) -> bool:
        """Whether any handle still leads to the client."""
        return any(handle.open for handle in self._handles.values())

    @property
    def waits_for_reader(self) -> bool:
        """Whether the window is full."""
        return not self._has_room()

    @property
    def held_bytes(self) -> int:
        """Of the cloves that are kept until their segment is acknowledged, without what is around them."""
        return self._unread * self._expansion[0] // self._expansion[1]

    @property
    def read_whole(self) -> bool:
        """Whether the client has acknowledged all of it."""
        return self.ended and not self._sent

    # -- what the client lends and says ----------------------------------------------------------------------------

    def attach(self, handle: Handle, after: int = 0) -> None:
        """Send through this handle from now on, and what is still here of segments from `after`."""
        before = self._handles.get(handle.index)
        self._handles[handle.index] = handle
        if before is not None:
            before.end()
        if self.abandoned:
            handle.end(AnswerKind.UNKNOWN)
            return
        last = self._next - 1
        for sent in self._sent:
            if sent.number >= after:
                handle.put(sent.cloves[handle.index], final=self.ended and sent.number == last)
        if self.ended:
            handle.end()

    def acknowledge(self, before: int) -> None:
        """The client has read all segments before this one."""
        while self._sent and self._sent[0].number < min(before, self._next):
            self._unread -= self._sent.popleft().length
        if self._has_room():
            self._room.set()
            self._flush()

    def abandon(self, kind: AnswerKind = AnswerKind.DONE) -> None:
        """Nothing more is sent; whoever writes gets Abandoned."""
        self.abandoned = True
        self._room.set()
        for handle in self._handles.values():
            handle.end(kind)
        self._sent.clear()
        self._pending.clear()
        self._unread = 0

    # -- what the party that answers says --------------------------------------------------------------------------

    async def first(self, content: bytes) -> None:
        """A segment of its own, sent at once: the head."""
        await self._wait_for_room()
        self._send(content, last=False)

    async def write(self, content: bytes) -> None:
        """More of the body; waits while the window is full. Raises Abandoned."""
        for at in range(0, len(content), SEGMENT_BYTES):
            await self._wait_for_room()
            self._pending += content[at : at + SEGMENT_BYTES]
            if len(self._pending) >= SEGMENT_BYTES:
                self._flush()
        self._flush_soon()

    async def end(self) -> None:
        """The body is whole."""
        self._ending = True
        while not self.ended:
            await self._wait_for_room()
            self._flush()

    def _has_room(self) -> bool:
        return len(self._sent) < WINDOW_SEGMENTS and (not self._sent or self._unread < self._most_unread)

    async def _wait_for_room(self) -> None:
        while not self.abandoned and not self._has_room():
            self._room.clear()
            await self._room.wait()
        if self.abandoned:
            raise Abandoned("Nobody waits for this answer any more")

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        while not self.abandoned and not self.ended and (self._pending or self._ending) and self._has_room():
            content = bytes(self._pending[:SEGMENT_BYTES])
            del self._pending[:SEGMENT_BYTES]
            self._send(content, last=self._ending and not self._pending)

    def _send(self, content: bytes, *, last: bool) -> None:
        cloves = self._sender.send(content, last=last)
        self._sent.append(_Sent(self._next, cloves, len(content)))
        self._next += 1
        self._unread += len(content)
        self.ended = last
        for index, handle in self._handles.items():
            handle.put(cloves[index], final=last)
