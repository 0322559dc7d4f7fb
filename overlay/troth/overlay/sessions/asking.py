"""One request of a client: sent as cloves on every path of its session, its answer gathered from any k of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Protocol

from troth.overlay.sessions.carrying import QUIET_SECONDS, Carrying
from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.frames import AcknowledgeFrame, acknowledge_frame, cancel_frame
from troth.overlay.sessions.messages import HttpRequest, encode_request, reply_id
from troth.overlay.sessions.path import SessionPath, Unsealed
from troth.overlay.sessions.reply import WINDOW_SEGMENTS
from troth.overlay.sida import Clove, Sender, Threshold
from troth.overlay.sida.assembly import Assembly
from troth.overlay.sida.errors import CloveRefused
from troth.overlay.sida.sending import SEGMENT_BYTES
from troth.transport.errors import CircuitFailed, OverlayError

REPAIRS_PER_PATH = 4
ACKNOWLEDGE_EVERY = 12
"""Segments read; a destination goes at most 48 ahead."""


class Paths(Protocol):
    """What a request needs of its session (`session.Session`)."""

    threshold: Threshold
    secret: bytes

    async def path(self, index: int) -> SessionPath:
        """The path of this index, once there is one; raises CircuitFailed or OverlayError."""

    def broken(self, index: int, path: SessionPath, failure: CircuitFailed) -> None:
        """This path is no good."""

    def renew(self, index: int, path: SessionPath | None, opened: bytes) -> None:
        """The destination does not know the path, which had the id ``opened``."""

    def finished(self, asking: Asking, last_word: Coroutine[Any, Any, None]) -> None:
        """The request is over, but for its last word."""


class Asking:
    """Use `Session.request`. `parts` gives the answer's segments; it must be read, or closed."""

    def __init__(self, session: Paths, request: HttpRequest) -> None:
        self._session = session
        sender = Sender(session.threshold, session.secret)
        self.id = sender.message_id
        self._cloves = list(zip(*sender.cut(encode_request(request), SEGMENT_BYTES), strict=True))
        self._reply = reply_id(self.id)
        self._assembly = Assembly(session.secret)
        self._parts: asyncio.Queue[bytes | RequestFailed | None] = asyncio.Queue()
        self._carriers: dict[int, asyncio.Task[None]] = {}
        self._words: set[asyncio.Task[None]] = set()
        self._used: set[int] = set()
        self._seen = [0] * session.threshold.n
        self._moved = asyncio.get_running_loop().time()
        self._failure: CircuitFailed | None = None
        self._read = self._acknowledged = self._confirmed = self._turn = 0
        self._over = False

    def start(self) -> None:
        """Begin on every path."""
        for index, cloves in enumerate(self._cloves):
            self._carriers[index] = asyncio.create_task(self._carry(index, cloves))

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Each segment of the answer in order; raises RequestFailed. Closing early tells the destination to stop."""
        try:
            while (part := await self._parts.get()) is not None:
                if isinstance(part, RequestFailed):
                    raise part
                self._read += 1
                yield part
                if self._read - self._acknowledged >= ACKNOWLEDGE_EVERY:
                    self._acknowledge()
        finally:
            self._finish()

    # -- what paths bring ------------------------------------------------------------------------------------------

    @property
    def heard(self) -> bool:
        """Whether anything of the answer has come."""
        return self._assembly.next_number > 0

    @property
    def next_number(self) -> int:
        """The segment that is awaited."""
        return self._assembly.next_number

    @property
    def ended(self) -> bool:
        """Whether the answer is whole."""
        return self._assembly.ended

    def take(self, clove: Clove, source: bytes, index: int) -> None:
        """A clove of the answer; raises CircuitFailed for one of anything else, RequestFailed for more than fits."""
        segment = clove.segment
        if segment.message_id != self._reply or segment.threshold != self._session.threshold:
            raise CircuitFailed("destination", 0, "it sent a clove of something else")
        if segment.number >= self._read + WINDOW_SEGMENTS:
            # An honest destination waits for the reader; one that does not would fill this memory.
            raise RequestFailed(CircuitFailed("destination", 0, "it sends more than is read"), Delivered.YES)
        self._seen[index] = max(self._seen[index], segment.number + 1)
        before = self._assembly.next_number
        # A refused clove came late: the other paths were faster.
        with contextlib.suppress(CloveRefused):
            for part in self._assembly.add(clove, source):
                self._parts.put_nowait(part.content)
        if self._assembly.next_number > before:
            self._moved = asyncio.get_running_loop().time()
            if self._assembly.ended:
                self._parts.put_nowait(None)
            # What ended paths had brought beyond this may be used up.
            self._require_enough()

    def behind(self, index: int) -> bool:
        """Whether what other paths brought a while ago has not come on this one."""
        if self._read > self._confirmed:
            # The last word may be what was lost, and the destination may be waiting for it.
            self._acknowledge()
        since = asyncio.get_running_loop().time() - self._moved
        return self._seen[index] < self._assembly.next_number and since > QUIET_SECONDS

    # -- paths -----------------------------------------------------------------------------------------------------

    async def _carry(self, index: int, cloves: tuple[bytes, ...]) -> None:
        """Work on the path of this index, on another circuit each time that one fails."""
        try:
            for _ in range(1 + REPAIRS_PER_PATH):
                if await self._carried(index, cloves):
                    break
        finally:
            del self._carriers[index]
            self._require_enough()

    async def _carried(self, index: int, cloves: tuple[bytes, ...]) -> bool:
        """Whether this path has done all it can; False to try again."""
        path, opened = None, b""
        try:
            path = await self._session.path(index)
            opened = path.id
            self._used.add(index)
            await Carrying(self, path, index).run(cloves)
        except RequestFailed as failure:
            self._fail(failure)
        except Unsealed:
            # Perhaps the destination was restarted: the same circuit may serve with a new opening.
            self._failure = CircuitFailed("destination", 0, "it does not know this session")
            self._session.renew(index, path, opened)
            return False
        except CircuitFailed as failure:
            self._failure = failure
            if path is None:
                return True
            self._session.broken(index, path, failure)
            return False
        except OverlayError as error:
            self._failure = without_path(self._failure, error)
        return True

    def _require_enough(self) -> None:
        """Fail the request when the paths that are left cannot bring the next segment."""
        if self._over or self._assembly.ended:
            return
        wanted = self._assembly.next_number
        brought = sum(seen > wanted for index, seen in enumerate(self._seen) if index not in self._carriers)
        if brought + len(self._carriers) < self._session.threshold.k:
            failure = self._failure or CircuitFailed("path", 0, "no path is left")
            reached = len(self._used) >= self._session.threshold.k
            delivered = Delivered.YES if self.heard else Delivered.UNKNOWN if reached else Delivered.NO
            self._fail(RequestFailed(failure, delivered))

    # -- the whole -------------------------------------------------------------------------------------------------

    def _fail(self, failure: RequestFailed) -> None:
        if not self._over:
            self._over = True
            self._parts.put_nowait(failure)

    def _acknowledge(self) -> None:
        self._acknowledged = self._read
        self._say(self._confirm(self._read))

    async def _confirm(self, read: int) -> None:
        if await self._tell(acknowledge_frame(AcknowledgeFrame(self.id, read))):
            self._confirmed = max(self._confirmed, read)

    async def _tell(self, plain: bytes) -> bool:
        """Say something on one path, another one each time; whether the destination has answered under its seal."""
        self._turn += 1
        with contextlib.suppress(OverlayError, Unsealed, TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                path = await self._session.path(self._turn % self._session.threshold.n)
                await (await path.send(plain)).next()
                return True
        return False

    async def _tell_surely(self, plain: bytes) -> None:
        """On one path after the other until it was heard: a proxy that swallows it keeps nobody at work."""
        for _ in range(self._session.threshold.n):
            if await self._tell(plain):
                return

    def _say(self, saying: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(saying)
        self._words.add(task)
        task.add_done_callback(self._words.discard)

    def _finish(self) -> None:
        """Nothing more is read: stop every path, and let the destination know."""
        self._over = True
        for task in (*self._carriers.values(), *self._words):
            task.cancel()
        read = AcknowledgeFrame(self.id, self._assembly.next_number)
        last = acknowledge_frame(read) if self._assembly.ended else cancel_frame(self.id)
        self._session.finished(self, self._tell_surely(last))


def without_path(before: CircuitFailed | None, error: OverlayError) -> CircuitFailed:
    """Why a request has no other circuit for a path. What the destination itself did, ``before``, says more."""
    if before is not None and before.hop == "destination":
        return before
    reason = error.what if error.value is None else f"{error.what}: {error.value}"
    return CircuitFailed("path", 0, reason, error.remedy)
