"""A proxy's connections to destinations, one each, shared by all circuits, and the exchanges on them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from troth.overlay.cells.format import EndReason
from troth.overlay.cells.messages import CellMessage
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.circuits.link import link_client_context
from troth.overlay.relay.delivery import ALPN, EXCHANGE, DeliveryFrame, DeliveryKind, FrameReader, encode_frame
from troth.overlay.relay.limits import RelayLimits
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
WRITE_LIMIT = 8 * 2**20
"""Bytes that wait for one destination; more are refused, so that a slow one cannot fill this relay's memory."""


class AnswerReceiver(Protocol):
    """A circuit's end that waits for answers."""

    def begun(self, number: int, exchange: bytes) -> None:
        """The message was handed over."""

    def answered(self, number: int, content: bytes, *, final: bool) -> None:
        """An answer."""

    def failed(self, number: int, reason: EndReason) -> None:
        """No further answer will come."""


@dataclass(slots=True)
class _Exchange:
    sender: AnswerReceiver
    number: int
    connection: _DestinationConnection
    since: float


class Deliveries:
    """Hands messages to destinations. Which ones there are, the caller's directory says."""

    def __init__(self, limits: RelayLimits, batch_ended: Callable[[], None]) -> None:
        self._limits = limits
        self.batch_ended = batch_ended
        self._connections: dict[bytes, _DestinationConnection] = {}
        self._opening: dict[bytes, asyncio.Task[_DestinationConnection]] = {}
        self._exchanges: dict[bytes, _Exchange] = {}

    def __len__(self) -> int:
        return len(self._exchanges)

    def begin_now(self, place: PinnedAddress, message: CellMessage, sender: AnswerReceiver) -> bool:
        """Hand a message over if there is a connection; else False, and `begin` makes one."""
        connection = self._connections.get(place.name)
        if connection is None:
            return False
        self._hand_over(connection, message, sender)
        return True

    async def begin(self, place: PinnedAddress, message: CellMessage, sender: AnswerReceiver) -> None:
        """Connect and hand a message over; the sender hears of a failure."""
        opening = self._opening.get(place.name)
        if opening is None:
            opening = self._opening[place.name] = asyncio.create_task(self._open(place))
            # Everybody who waits may be gone before it fails.
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            connection = await asyncio.shield(opening)
        except (OSError, TimeoutError, ValueError, OverlayError) as error:
            # Which one a client wanted, and when, is not for a file on the relay's disk.
            log.info("a destination cannot be reached")
            log.debug("destination %s:%d cannot be reached: %s", place.host, place.port, error)
            sender.failed(message.number, EndReason.UNREACHABLE)
        else:
            self._hand_over(connection, message, sender)
        self.batch_ended()

    def cancel(self, exchange: bytes) -> None:
        """Nobody waits for these answers any more."""
        known = self._exchanges.pop(exchange, None)
        if known is not None:
            known.connection.write(DeliveryFrame(DeliveryKind.CANCEL, exchange))

    def expire(self, now: float) -> None:
        """End exchanges that got no answer in time."""
        for exchange, known in list(self._exchanges.items()):
            if now - known.since > self._limits.exchange_seconds:
                self.cancel(exchange)
                known.sender.failed(known.number, EndReason.IDLE)

    def close(self) -> None:
        """Close every connection."""
        for opening in self._opening.values():
            opening.cancel()
        for connection in list(self._connections.values()):
            connection.close()

    def _hand_over(self, connection: _DestinationConnection, message: CellMessage, sender: AnswerReceiver) -> None:
        if connection.congested:
            sender.failed(message.number, EndReason.BUSY)
            return
        exchange = secrets.token_bytes(EXCHANGE)
        now = asyncio.get_running_loop().time()
        self._exchanges[exchange] = _Exchange(sender, message.number, connection, now)
        sender.begun(message.number, exchange)
        connection.write(DeliveryFrame(DeliveryKind.MESSAGE, exchange, message.content))

    async def _open(self, place: PinnedAddress) -> _DestinationConnection:
        context = link_client_context(place.tls_key_hash, ALPN)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: _DestinationConnection(self, self._limits.reply_bytes),
                    place.host,
                    place.port,
                    ssl=context,
                    server_hostname="",
                )
            self._connections[place.name] = connection
            return connection
        finally:
            self._opening.pop(place.name, None)

    def came(self, frame: DeliveryFrame, connection: _DestinationConnection) -> None:
        """A frame of a destination; what nobody waits for on this connection is ignored."""
        known = self._exchanges.get(frame.exchange)
        if known is None or known.connection is not connection:
            return
        known.since = asyncio.get_running_loop().time()
        if frame.kind is DeliveryKind.ANSWER:
            known.sender.answered(known.number, frame.content, final=False)
            return
        del self._exchanges[frame.exchange]
        if frame.kind is DeliveryKind.FINAL:
            known.sender.answered(known.number, frame.content, final=True)
        else:
            known.sender.failed(known.number, EndReason.BUSY)

    def lost(self, connection: _DestinationConnection) -> None:
        """A destination is gone, and with it every exchange."""
        for name in [name for name, known in self._connections.items() if known is connection]:
            del self._connections[name]
        for exchange, known in list(self._exchanges.items()):
            if known.connection is connection:
                del self._exchanges[exchange]
                known.sender.failed(known.number, EndReason.UNREACHABLE)
        self.batch_ended()


class _DestinationConnection(asyncio.Protocol):
    """One connection to a destination."""

    def __init__(self, deliveries: Deliveries, largest: int) -> None:
        self._deliveries = deliveries
        self._reader = FrameReader(largest)
        self._transport: asyncio.Transport | None = None

    @property
    def congested(self) -> bool:
        return self._transport is None or self._transport.get_write_buffer_size() > WRITE_LIMIT

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != ALPN:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._deliveries.came(frame, self)
        except OverlayError as error:
            log.warning("a destination does not keep to the format: %s", error)
            self.close()
        finally:
            self._deliveries.batch_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deliveries.lost(self)

    def write(self, frame: DeliveryFrame) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(frame))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
