"""Runs a FastAPI app behind TLS 1.3 until it is told to stop, then lets started work finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn._types import ASGI3Application
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from troth.transport.alone import ENDING
from troth.transport.channel_server import ChannelLimits
from troth.transport.envelope import OVERHEAD
from troth.transport.errors import ChannelUnavailable
from troth.transport.https import (
    CONNECTIONS,
    CONNECTIONS_PER_HOST,
    WAITING_BEHIND_TUNNEL,
    BoundedHttp,
    TunnelledHttp,
    in_pieces,
)
from troth.transport.identity import TlsIdentity
from troth.transport.listener import Admits, TlsListener, listening_socket
from troth.transport.shared_port import SharedPort
from troth.transport.tls import server_context

log = logging.getLogger(__name__)

Drain = Callable[[], Awaitable[None]]
HANDSHAKE_SECONDS = 10.0
"""For TLS; longer than any honest peer's three packets take."""
DATE_SECONDS = 1.0
LOOK_SECONDS = 0.01
GOODBYE_SECONDS = 0.5
"""For a peer to answer the end of TLS; after it an idle connection is cut."""
IDLE_SECONDS = 5
"""After which a connection without a request is closed."""
_NO_NEWS = ("ASGI callable returned without completing handshake", "Invalid HTTP request received")


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's, which cannot end a connection that its peer is ending: the error would cut a whole process's stop."""

    def shutdown(self) -> None:
        """Close with a word where one can still be sent."""
        with contextlib.suppress(InvalidState):
            super().shutdown()
        self.transport.close()


class TlsServer:
    """One listening endpoint.

    Args:
        app: what it serves.
        identity: its TLS key, or None for plain HTTP (metrics on a loopback port only).
        host, port: where it listens; port 0 takes a free one, see `port` after `start`.
        drain: awaited between the wish to stop and the end of the listening socket.
        drain_seconds: how long draining may take.
        grace_seconds: how long requests that are being answered then have for their ends.
        shared: what else is spoken on the port.
        tunnelled: whether visitors come through a tunnel, so that all of them seem to be of one host.
    """

    def __init__(
        self,
        app: FastAPI,
        identity: TlsIdentity | None,
        host: str,
        port: int,
        *,
        drain: Drain | None = None,
        drain_seconds: float = 30.0,
        grace_seconds: float = 5.0,
        limits: ChannelLimits | None = None,
        shared: SharedPort | None = None,
        tunnelled: bool = False,
    ) -> None:
        self._app = app
        self._drain = drain
        self._drain_seconds = drain_seconds
        self._host = host
        self._wanted_port = port
        self._socket: socket.socket | None = None
        http = TunnelledHttp if tunnelled else BoundedHttp
        configuration = _configuration(app, identity, limits or ChannelLimits(), shared or SharedPort(()), http)
        self._server = _Server(configuration, grace_seconds, _has_room_behind_tunnel if tunnelled else _has_room)
        self._running: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is listened on; raises ChannelUnavailable before `start`."""
        if self._socket is None:
            raise ChannelUnavailable("The server does not listen yet")
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Listen; raises ChannelUnavailable if the address is taken."""
        self._socket = listening_socket(self._host, self._wanted_port)
        self._running = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started:
            if self._running.done():
                await self._running
                raise ChannelUnavailable("The server ended while it started", self._host)
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Drain, close every connection, stop listening."""
        setattr(self._app.state, ENDING, True)
        if self._drain is not None:
            await self._drained(asyncio.ensure_future(self._drain()))
        self._server.end()
        if self._running is not None:
            await self._running

    def hurry(self) -> None:
        """Do not wait for what is under way any longer."""
        self._hurry.set()

    async def _drained(self, draining: asyncio.Future[None]) -> None:
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            both: set[asyncio.Future[Any]] = {draining, hurrying}
            await asyncio.wait(both, timeout=self._drain_seconds, return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                draining.result()
        finally:
            draining.cancel()
            hurrying.cancel()


async def run_until_stopped(
    server: TlsServer,
    on_ready: Callable[[int], None] | None = None,
    watch: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain and stop; a second signal ends draining. `on_ready` gets the port.

    What `watch` raises ends it in the same way, and is raised then.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stop.is_set():
            server.hurry()
            return
        log.info("stopping once what is under way is done; a second signal stops at once, and nothing is lost")
        stop.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, signalled)
    async with serving(server):
        if on_ready is not None:
            on_ready(server.port)
        waiting = [asyncio.create_task(stop.wait()), *([asyncio.create_task(watch())] if watch is not None else [])]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
    for task in done:
        task.result()


@asynccontextmanager
async def serving(server: TlsServer) -> AsyncIterator[TlsServer]:
    """The server runs inside the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class _Server(uvicorn.Server):
    """uvicorn behind a listener of ours, which bounds handshakes, and that ends as soon as it may.

    It leaves the process's signals to `run_until_stopped`. uvicorn itself looks ten times a second whether it is to
    end, and for how long it is quiet.
    """

    def __init__(self, configuration: uvicorn.Config, grace_seconds: float, admits: Admits) -> None:
        super().__init__(configuration)
        self._grace_seconds = grace_seconds
        self._admits = admits
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the sockets of `TlsServer`."""
        protocol = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        made = partial(protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        await self.lifespan.startup()
        self.servers = [
            cast(
                asyncio.Server,
                TlsListener(one, self.config.ssl, lambda _host: made(), self._admits, seconds=HANDSHAKE_SECONDS),
            )
            for one in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Take nothing more, and finish."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Keep the date in answers right until the end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_SECONDS):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is idle at once, and what is being answered after its answer, or when the grace is over."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        state, closing = self.server_state, dict[Any, float]()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace_seconds):
                while state.connections or state.tasks:
                    self._close(closing)
                    await asyncio.sleep(LOOK_SECONDS)
        for task in state.tasks:
            task.cancel(msg="the server ends")

    def _close(self, closing: dict[Any, float]) -> None:
        """Tell every connection once, and cut those that were idle then and whose peers read nothing.

        Such a peer does not answer the end of TLS. Who still has something of its answer to read is left until the
        grace is over. ``closing``: when each was told; never, where it was answering.
        """
        now = time.monotonic()
        for connection in list(self.server_state.connections):
            if connection not in closing:
                # asyncio forgets what is left to send of a connection that is closed twice.
                if not connection.transport.is_closing():
                    connection.shutdown()
                closing[connection] = now if connection.transport.is_closing() else math.inf
            elif now - closing[connection] > GOODBYE_SECONDS and not self._has_unsent(connection):
                connection.transport.abort()

    def _has_unsent(self, connection: Any) -> bool:
        """Whether a connection still has something of an answer. One that was closed twice, by whoever, can be asked
        nothing any more, nor cut: asyncio does that in a while, and nobody waits for it."""
        try:
            return bool(connection.transport.get_write_buffer_size())
        except AttributeError:
            self.server_state.connections.discard(connection)
            return False


def _has_room(listener: TlsListener, host: str) -> bool:
    """As many may be in a handshake as may be connected afterwards, see `BoundedHttp`.

    Where many hosts hold all places the oldest gives way: an honest peer needs its place for a moment only.
    """
    if listener.handshakes_from(host) >= CONNECTIONS_PER_HOST:
        return False
    if listener.handshakes >= CONNECTIONS:
        listener.cut_oldest()
    return True


def _has_room_behind_tunnel(listener: TlsListener, _host: str) -> bool:
    """Always: all visitors seem to be of one host, so the oldest handshake gives way where there are too many."""
    if listener.handshakes >= WAITING_BEHIND_TUNNEL:
        listener.cut_oldest()
    return True


class _Quiet(uvicorn.Config):
    """uvicorn without its own logging set-up; this package's `logs` has already arranged it."""

    def configure_logging(self) -> None:
        logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """All but what uvicorn says of a connection that was refused with an answer: the channel itself tells who.

    Nor that somebody sent no HTTP: it names nobody, and a stranger could fill the log with it.
    """
    return not record.getMessage().startswith(_NO_NEWS)


def _configuration(
    app: FastAPI, identity: TlsIdentity | None, limits: ChannelLimits, shared: SharedPort, protocol: type[BoundedHttp]
) -> uvicorn.Config:
    def context(_config: uvicorn.Config, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        assert identity is not None
        made = server_context(identity)
        made.set_alpn_protocols(shared.offered)
        return made

    return _Quiet(
        in_pieces(cast("ASGI3Application", app)),
        ws=_WebSocket,
        ws_max_size=limits.frame + OVERHEAD,
        ws_per_message_deflate=False,
        http=cast("type[asyncio.Protocol]", shared.beside(protocol)),
        lifespan="off",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        ssl_context_factory=context if identity is not None else None,
    )
