"""httpx over a session: whatever speaks HTTP to a destination does so through the overlay without knowing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import httpx

from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.messages import HttpRequest, ResponseHead
from troth.overlay.sessions.session import Response, Session
from troth.overlay.sessions.sessions import SessionRotation
from troth.transport.errors import CircuitFailed

_DROPPED = {"host", "connection", "content-length", "transfer-encoding", "user-agent", "accept-encoding", "cookie"}
"""Headers that say something about the client's software, or a connection that there is none of, or tie sessions."""


class OverlayTransport(httpx.AsyncBaseTransport):
    """Sends each request over the current session. CircuitFailed and its kin are raised as they are."""

    def __init__(self, sessions: SessionRotation) -> None:
        self._sessions = sessions

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """httpx's seam; its read timeout bounds the wait for the head and for each piece of the body."""
        headers = tuple((name, value) for name, value in request.headers.items() if name.lower() not in _DROPPED)
        asked = HttpRequest(request.method, request.url.raw_path.decode("ascii"), headers, await request.aread())
        seconds = request.extensions.get("timeout", {}).get("read")
        session = await self._sessions.current()
        try:
            async with asyncio.timeout(seconds):
                response = await session.request(asked)
        except TimeoutError as error:
            raise httpx.ReadTimeout("no answer over the overlay", request=request) from error
        try:
            headers_of_answer = _checked(response.head)
        except RequestFailed:
            await response.body.aclose()
            raise
        return httpx.Response(
            response.head.status, headers=headers_of_answer, stream=_Body(response, session, seconds, request)
        )

    async def aclose(self) -> None:
        """The sessions are the caller's."""


def _checked(head: ResponseHead) -> list[tuple[bytes, bytes]]:
    """Headers that httpx takes; raises RequestFailed. What was not asked for, compression, could be a bomb."""
    try:
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in head.headers]
    except UnicodeEncodeError:
        headers = [(b"content-encoding", b"")]
    if any(name.lower() == b"content-encoding" for name, _ in headers):
        failure = CircuitFailed("destination", 0, "the headers of its answer are not as asked for")
        raise RequestFailed(failure, Delivered.YES)
    # A cookie would come back in the next session, and say that both are the same client's.
    return [(name, value) for name, value in headers if name.lower() != b"set-cookie"]


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: Response, session: Session, seconds: float | None, request: httpx.Request) -> None:
        self._body: AsyncGenerator[bytes, None] = response.body
        self._seconds = seconds
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    piece = await anext(self._body, None)
            except TimeoutError as error:
                raise httpx.ReadTimeout("the answer over the overlay stopped", request=self._request) from error
            if piece is None:
                return
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()
