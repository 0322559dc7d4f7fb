"""A destination's side of deliveries: gets whole messages from proxies and answers through them.

A proxy shows no key. What the messages say is between their two ends; a destination takes them from anybody, and
bounds what anybody can make it hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import cast

from troth.overlay.relay.delivery import ALPN, DeliveryFrame, DeliveryKind, FrameReader, encode_frame
from troth.transport.errors import OverlayError
from troth.transport.identity import TlsIdentity
from troth.transport.tls import server_context

log = logging.getLogger(__name__)

Answers = Callable[[bytes], AsyncIterator[tuple[bytes, bool]]]
"""From a message to (answer, whether it is the final one)."""
IN_FLIGHT = 256
"""Messages of one proxy that are being answered at once."""
PROXIES = 256
LARGEST = 2**20
"""Bytes of one message."""


class DeliveryServer:
    """Listens for proxies; `answers(message)` yields each answer, which is sent at once.

    Args:
        connections: proxies at once.
    """

    def __init__(self, identity: TlsIdentity, answers: Answers, *, connections: int = PROXIES) -> None:
        self._identity = identity
        self.answers = answers
        self.limit = connections
        self.open: dict[_Proxy, None] = {}
        """In the order in which they came."""
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        context = server_context(self._identity)
        context.set_alpn_protocols([ALPN])
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.protocol, host, port, ssl=context, ssl_handshake_timeout=5)
        return int(self._server.sockets[0].getsockname()[1])

    def protocol(self) -> asyncio.Protocol:
        """For one proxy's connection, also on a port that others share."""
        return _Proxy(self)

    def make_room(self) -> bool:
        """Whether there is a place for another proxy; the oldest connection that awaits no answer gives way."""
        if len(self.open) < self.limit:
            return True
        idle = next((proxy for proxy in self.open if proxy.idle), None)
        if idle is None:
            return False
        del self.open[idle]
        idle.abort()
        return True

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for proxy in list(self.open):
            proxy.close()


class _Proxy(asyncio.Protocol):
    """One proxy's connection."""

    def __init__(self, server: DeliveryServer) -> None:
        self._server = server
        self._reader = FrameReader(LARGEST)
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered."""
        return not self._tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != ALPN or not self._server.make_room():
            transport.abort()
            return
        self._server.open[self] = None

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._came(frame)
        except OverlayError as error:
            log.info("a proxy does not keep to the format: %s", error)
            self.close()

    def _came(self, frame: DeliveryFrame) -> None:
        if frame.kind is DeliveryKind.CANCEL:
            task = self._tasks.pop(frame.exchange, None)
            if task is not None:
                task.cancel()
        elif frame.kind is not DeliveryKind.MESSAGE or frame.exchange in self._tasks or len(self._tasks) >= IN_FLIGHT:
            self._write(DeliveryKind.REFUSED, frame.exchange)
        else:
            task = asyncio.create_task(self._answer(frame))
            self._tasks[frame.exchange] = task

    async def _answer(self, frame: DeliveryFrame) -> None:
        final = False
        try:
            async for answer, final in self._server.answers(frame.content):
                self._write(DeliveryKind.FINAL if final else DeliveryKind.ANSWER, frame.exchange, answer)
                await self._writable.wait()
            if not final:
                self._write(DeliveryKind.FINAL, frame.exchange)
        except Exception:
            log.exception("a delivered message was not answered")
            self._write(DeliveryKind.REFUSED, frame.exchange)
        finally:
            # A cancelled exchange's number may be another one's by now, which is counted until it ends itself.
            if self._tasks.get(frame.exchange) is asyncio.current_task():
                del self._tasks[frame.exchange]

    def _write(self, kind: DeliveryKind, exchange: bytes, content: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(DeliveryFrame(kind, exchange, content)))

    def pause_writing(self) -> None:
        """Whoever does not read is not heard either, lest refusals pile up for him."""
        self._writable.clear()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.open.pop(self, None)
        for task in list(self._tasks.values()):
            task.cancel()

    def abort(self) -> None:
        """At once: whoever does not read does not take a good-bye either."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
