"""HTTPS between parties: pinned to the key of the channel, on connections that nobody can hold open for nothing.

uvicorn waits for ever for a request's first line and headers, and for whoever reads nothing of its answers, from as
many peers as there are file descriptors. Here a connection that is not being answered has a few seconds to ask
something, and a minute to read each half megabyte of an answer; and one host has a share of all connections. Where many
hosts hold all of them, the oldest that waits for its peer gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import h11
import httpx
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from troth.transport.errors import ChannelTimeout, ChannelUnavailable
from troth.transport.listener import customer_of
from troth.transport.tls import as_wrong_tls_key, pinned_context

KEPT_SECONDS = 2.0
"""For how long an idle connection is used again: well under what servers wait before they close one
(`server.IDLE_SECONDS`). With equal times, a request now and then meets the closing of the connection it is sent on."""
HEADER_SECONDS = 15.0
"""For the request line and all headers; longer than any honest peer's pause between two packets."""
UNREAD_SECONDS = 60.0
"""For a peer to read what fills its connection's buffers, about half a megabyte: longer than a slow line takes."""
PIECE_BYTES = 64 * 1024
"""Of a long answer, written at a time."""
CONNECTIONS = 1024
CONNECTIONS_PER_HOST = 128
WAITING_BEHIND_TUNNEL = 16
"""Of the visitors of one lent endpoint (`wire_tunnel.VISITORS_LIMIT`), in handshakes as many again."""


def pinned_client(endpoint: str, tls_key_hash: bytes, timeout: float = 30.0) -> httpx.AsyncClient:
    """An asynchronous client that talks to `endpoint` and nobody else; wrap calls in `naming_errors`."""
    return httpx.AsyncClient(
        base_url=_address(endpoint),
        verify=pinned_context(tls_key_hash),
        timeout=timeout,
        limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )


def pinned_sync_client(endpoint: str, tls_key_hash: bytes) -> httpx.Client:
    """The same for code that is not asynchronous."""
    return httpx.Client(
        base_url=_address(endpoint),
        verify=pinned_context(tls_key_hash),
        timeout=30.0,
        limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )


def _address(endpoint: str) -> httpx.URL:
    """An endpoint comes from a stranger's registration; raises ChannelUnavailable where it cannot be one."""
    try:
        address = httpx.URL(endpoint)
        if address.scheme != "https":
            # Without TLS there is no pin: it could be anything that listens near whoever is made to ask.
            raise ChannelUnavailable("An endpoint starts with https://", endpoint, "Correct the registration.")
        if address.port is not None and not 0 < address.port < 1 << 16:
            raise ChannelUnavailable(f"{endpoint} has an impossible port", address.port)
        address.host.encode("idna")
    except (httpx.InvalidURL, ValueError) as error:
        raise ChannelUnavailable(f"{endpoint} is no address", error) from error
    return address


@contextmanager
def naming_errors(endpoint: str) -> Iterator[None]:
    """Turn httpx's transport errors into WrongTlsKey, ChannelTimeout or ChannelUnavailable."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise ChannelTimeout(f"{endpoint} did not answer in time", error) from error
    except httpx.TransportError as error:
        wrong_key = as_wrong_tls_key(error, endpoint)
        if wrong_key is not None:
            raise wrong_key from error
        raise ChannelUnavailable(f"{endpoint} cannot be reached", error) from error


def in_pieces(app: ASGI3Application) -> ASGI3Application:
    """The same application, whose long answers leave piece by piece as they are read.

    Written at once, a model's tokenizer would lie in memory for each reader. On a slow line it would be cut off: TLS
    has half a minute to send what is left when a connection is closed.
    """

    async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_pieces(message: ASGISendEvent) -> None:
            if message["type"] != "http.response.body" or len(message["body"]) <= PIECE_BYTES:
                await send(message)
                return
            body, more = message["body"], message.get("more_body", False)
            for start in range(0, len(body), PIECE_BYTES):
                end = start + PIECE_BYTES
                piece: Any = {**message, "body": body[start:end], "more_body": more or end < len(body)}
                await send(piece)

        await app(scope, receive, send_pieces)

    return answer


class BoundedHttp(H11Protocol):
    """uvicorn's protocol over h11, which also bounds the size of headers (64 KiB)."""

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turn away who comes when all places of its host are taken, or all places by peers that are being answered."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if self._from_same_host() > CONNECTIONS_PER_HOST or not self._has_place():
            transport.abort()
            return
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is answered; whoever asks on and reads nothing would stay for ever."""
        super().pause_writing()
        self._stop_watching()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The peer has read."""
        self._stop_watching()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Part of a request; the time for all of it runs from its first byte."""
        if self._deadline is None and not self._is_answering():
            self._wait_for_request()
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on the websocket's own keepalive applies."""
        self._stop_waiting()
        self._stop_watching()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Part of the next request may have come already."""
        super().on_response_complete()
        if self.conn.trailing_data[0] and not self._is_answering():
            self._wait_for_request()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _waits_for_peer(self) -> bool:
        """Whether the next step is the peer's: to ask, to send the rest of a request, or to read."""
        return not self._is_answering() or self.cycle.more_body or self.flow.write_paused

    def _has_place(self) -> bool:
        """Whether there is one, or another connection gives its own up. An honest peer's waits for a moment only."""
        if len(self.connections) <= CONNECTIONS:
            return True
        waiting = self._waiting()
        self._end(waiting[:1])
        return bool(waiting)

    def _waiting(self) -> list[BoundedHttp]:
        """The other connections that wait for their peers, the oldest first."""
        others = [one for one in cast("set[Any]", self.connections) if isinstance(one, BoundedHttp) and one is not self]
        return sorted((one for one in others if one._waits_for_peer()), key=lambda one: one._since)

    def _end(self, given_up: list[BoundedHttp]) -> None:
        for one in given_up:
            # At once: whoever comes before its end is seen would find the same one.
            self.connections.discard(one)
            one.transport.abort()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _from_same_host(self) -> int:
        own, others = customer_of(self.client), cast("set[Any]", self.connections)
        return sum(customer_of(connection.client) == own for connection in others)


class TunnelledHttp(BoundedHttp):
    """Behind a lent endpoint. The lender turns newcomers away where its places are taken, and cannot tell who waits:
    here few may, and whoever comes next is let in."""

    def _has_place(self) -> bool:
        waiting = self._waiting()
        self._end(waiting[: max(0, len(waiting) + 1 - WAITING_BEHIND_TUNNEL)])
        return super()._has_place()
