"""One request at its destination: received clove by clove, served once, answered over the client's handles."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from troth.overlay.sessions.errors import TooMuch
from troth.overlay.sessions.frames import AnswerKind
from troth.overlay.sessions.messages import HttpRequest, ResponseHead, decode_request, encode_head
from troth.overlay.sessions.reply import Abandoned, Reply
from troth.overlay.sessions.serving import Serve
from troth.overlay.sida import SegmentContent
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)


class RequestOutcome(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    ABANDONED = "abandoned"
    MALFORMED = "malformed"
    FAILED = "failed"


class Answering:
    """A request and its reply.

    Args:
        reply: where the answer goes.
        largest: bytes of the request.
        began: on the event loop's clock.
    """

    def __init__(self, reply: Reply, largest: int, began: float) -> None:
        self.reply = reply
        self.began = began
        self.outcome: RequestOutcome | None = None
        self._largest = largest
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        """Whether the request was whole and is being served."""
        return self._task is not None

    @property
    def running(self) -> bool:
        """Whether whoever serves it is still at it."""
        return self._task is not None and not self._task.done()

    @property
    def over(self) -> bool:
        """Whether the client has read all of the answer, and nobody works on it."""
        return self.reply.abandoned or (self.reply.read_whole and not self.running)

    def add(self, part: SegmentContent, serve: Serve) -> None:
        """The next part of the request; the last one starts it. Raises TooMuch."""
        self._body += part.content
        if len(self._body) > self._largest:
            self.stop(AnswerKind.REFUSED)
            raise TooMuch(f"A request has at most {self._largest} bytes", len(self._body), "Shorten it.")
        if part.last and not self.started:
            body, self._body = bytes(self._body), bytearray()
            self._task = asyncio.create_task(self._serve(body, serve))

    def stop(self, kind: AnswerKind = AnswerKind.DONE) -> None:
        """Nobody waits for the answer, or it is refused."""
        self.reply.abandon(kind)
        self.outcome = self.outcome or RequestOutcome.ABANDONED
        if self._task is not None:
            self._task.cancel()

    async def _serve(self, body: bytes, serve: Serve) -> None:
        try:
            request: HttpRequest = decode_request(body)
        except OverlayError as error:
            log.info("a session's request is refused: %s", error.what)
            self._end(RequestOutcome.MALFORMED)
            return
        responder = _Responder(self.reply)
        try:
            await serve(request, responder)
            if not responder.began:
                await responder.head(ResponseHead(204, ()))
            await self.reply.end()
        except Abandoned:
            self.outcome = RequestOutcome.ABANDONED
        except Exception:
            # What served it is other people's code; its failure must not take the destination along.
            log.exception("a request over the overlay was not answered whole")
            self._end(RequestOutcome.FAILED)
        else:
            self.outcome = RequestOutcome.ANSWERED

    def _end(self, outcome: RequestOutcome) -> None:
        self.outcome = outcome
        self.reply.abandon(AnswerKind.REFUSED)


class _Responder:
    """What `Serve` writes to."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.began = False

    async def head(self, head: ResponseHead) -> None:
        self.began = True
        await self._reply.first(encode_head(head))

    async def body(self, content: bytes) -> None:
        await self._reply.write(content)
