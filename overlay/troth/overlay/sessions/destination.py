"""The overlay entry of whoever serves requests: what proxies deliver becomes requests, answers go back as cloves.

Anybody may deliver anything. What is not sealed to this destination's key, or not by a path that it knows, costs one
parse or one opening and leaves nothing behind; the proxy gets an empty last answer, which says nothing about why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.chain.duty import Duty
from troth.overlay.relay.limits import TokenBucket
from troth.overlay.sessions.answering import Answering
from troth.overlay.sessions.errors import MalformedFrame, OpeningRefused, TooMuch
from troth.overlay.sessions.frames import (
    AnswerKind,
    Delivery,
    FrameKind,
    parse_delivery,
    read_acknowledge,
    read_handle,
    read_request_id,
    split_frame,
)
from troth.overlay.sessions.handle import Handle
from troth.overlay.sessions.limits import SessionLimits, SessionMetrics
from troth.overlay.sessions.opening import open_sealed
from troth.overlay.sessions.reply import Reply
from troth.overlay.sessions.serving import Serve
from troth.overlay.sessions.session_table import KnownPath, KnownSession, SessionTable
from troth.overlay.sida import Clove, Inbox, parse
from troth.overlay.sida.errors import CloveRefused
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
_NOTHING = b"", True


class Destination:
    """Give `answers` to a DeliveryServer, and run `sweeping` beside it.

    Args:
        name: the 32 bytes by which the directory names this destination; openings are sealed to it.
        secret: the X25519 key whose public half the directory shows.
        serve: answers requests.
    """

    def __init__(  # noqa: PLR0917
        self,
        name: bytes,
        secret: X25519PrivateKey,
        serve: Serve,
        limits: SessionLimits | None = None,
        metrics: SessionMetrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._secret = secret
        self._serve = serve
        self._limits = limits or SessionLimits()
        self.metrics = metrics or SessionMetrics()
        self._clock = clock
        self.table = SessionTable(self._limits)
        self._inbox = Inbox(self._limits.inbox)
        self._openings = TokenBucket(self._limits.openings_per_second, self._limits.opening_burst, 0.0)

    async def answers(self, message: bytes) -> AsyncIterator[tuple[bytes, bool]]:
        """Sealed answers to one delivered message, each with whether it is the last."""
        try:
            path, counter, plain = self._opened(parse_delivery(message))
            handle = self._heard(path, counter, *split_frame(plain))
        except OverlayError as error:
            self.metrics.refused.labels(error.code).inc()
            log.debug("a delivery is refused: %s", error.what)
            yield _NOTHING
            return
        if isinstance(handle, AnswerKind):
            yield Handle(path.keys, counter, 0).seal(handle), True
            return
        async for answer in handle.answers():
            yield answer

    async def sweeping(self) -> None:
        """Forget what is over, once a second, until cancelled."""
        await Duty("forgetting sessions", self._sweep, every=SWEEP_SECONDS, longest=SWEEP_SECONDS).run()

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self._inbox.expire(now)
        self.metrics.lost.inc(len(self._inbox.lost))
        self._inbox.lost.clear()
        self.table.sweep(now)
        self.metrics.sessions.set(len(self.table.sessions))

    def close(self) -> None:
        """End every session."""
        for session in list(self.table.sessions.values()):
            self.table.end(session)

    # -- paths -----------------------------------------------------------------------------------------------------

    def _opened(self, delivery: Delivery) -> tuple[KnownPath, int, bytes]:
        path = self._path(delivery)
        plain = path.keys.open_frame(delivery.counter, delivery.sealed)
        path.window.accept(delivery.counter)
        self.table.used(path.session, asyncio.get_running_loop().time())
        return path, delivery.counter, plain

    def _path(self, delivery: Delivery) -> KnownPath:
        if delivery.path_id:
            known = self.table.path(delivery.path_id)
            if known is None:
                raise MalformedFrame("A path that is not known here", delivery.path_id.hex())
            return known
        if not self._openings.take(asyncio.get_running_loop().time()):
            raise TooMuch("Too many paths are being opened", remedy="Try again in a second.")
        opening = open_sealed(delivery.opening, self._secret, self._name)
        age = self._clock() - opening.issued
        if abs(age) > self._limits.opening_age:
            raise OpeningRefused(
                f"An opening is at most {self._limits.opening_age:g} s old", f"{age:.0f} s", "Correct the clock."
            )
        return self.table.open(opening)

    # -- frames ----------------------------------------------------------------------------------------------------

    def _heard(self, path: KnownPath, counter: int, kind: FrameKind, content: bytes) -> Handle | AnswerKind:
        """What is to be said: through a handle as long as it takes, or one word."""
        session = path.session
        match kind:
            case FrameKind.CLOVE:
                return self._clove(path, counter, content)
            case FrameKind.HANDLE:
                wanted = read_handle(content)
                answering = session.requests.get(wanted.request)
                if answering is None or wanted.index >= session.threshold.n:
                    return AnswerKind.UNKNOWN
                handle = Handle(path.keys, counter, wanted.index)
                answering.reply.attach(handle, wanted.after)
                return handle
            case FrameKind.ACKNOWLEDGE:
                read = read_acknowledge(content)
                answering = session.requests.get(read.request)
                if answering is not None:
                    answering.reply.acknowledge(read.before)
                    if answering.over:
                        self.table.drop(session, read.request)
            case FrameKind.CANCEL:
                request = read_request_id(content)
                self.table.drop(session, request)
            case FrameKind.CLOSE:
                self.table.end(session)
        return AnswerKind.DONE

    def _clove(self, path: KnownPath, counter: int, wire: bytes) -> Handle | AnswerKind:
        session = path.session
        clove = parse(wire, self._limits.inbox.segment_bytes)
        if clove.segment.threshold != session.threshold:
            raise MalformedFrame("A clove of another threshold than its session's", clove.segment.threshold)
        answering = session.requests.get(clove.segment.message_id) or self._begin(session, clove)
        if isinstance(answering, AnswerKind):
            return answering
        handle: Handle | AnswerKind = AnswerKind.DONE
        if clove.segment.number == 0:
            handle = Handle(path.keys, counter, clove.index)
            answering.reply.attach(handle)
        self._take(path, answering, wire)
        return handle

    def _begin(self, session: KnownSession, clove: Clove) -> Answering | AnswerKind:
        request = clove.segment.message_id
        over = session.word_on(request)
        if over is not None:
            return over
        if session.under_way() >= self._limits.requests_per_session or self.table.running() >= self._limits.requests:
            self.metrics.refused.labels("busy").inc()
            return session.refuse(request)
        reply = Reply(request, session.threshold, session.secret)
        now = asyncio.get_running_loop().time()
        answering = Answering(reply, self._limits.request_bytes, now)
        self.table.add(session, request, answering)
        return answering

    def _take(self, path: KnownPath, answering: Answering, wire: bytes) -> None:
        try:
            parts = self._inbox.accept(wire, path.id, asyncio.get_running_loop().time(), path.session.secret)
        except CloveRefused as error:
            # Late or doubled: the handle that came with it serves all the same.
            log.debug("a clove is refused: %s", error.what)
            return
        for part in parts:
            if answering.outcome is not None:
                return
            if part.last and self.table.running() >= self._limits.requests:
                # There was a place when it began; others were whole sooner.
                self.metrics.refused.labels("busy").inc()
                self.table.busy(path.session, part.message_id)
                return
            answering.add(part, self._serve)
            if part.last:
                self.table.whole(path.session, part.message_id)
                self.metrics.requests.inc()
            else:
                self.table.grew(path.session, part.message_id, len(part.content))
