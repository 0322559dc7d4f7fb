"""HTTP connections that nobody can hold open for nothing.

uvicorn waits for ever for a request's first line and headers, from as many peers as there are file descriptors. Here a
connection that is not being answered has a few seconds to ask something, and one host has a share of all connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 15.0
"""For the request line and all headers; longer than any honest peer's pause between two packets."""
CONNECTIONS = 1024
CONNECTIONS_PER_HOST = 128


class BoundedHttp(H11Protocol):
    """uvicorn's protocol over h11, which also bounds the size of headers (64 KiB)."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turn away who comes when all places are taken."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS or self._from_same_host() > CONNECTIONS_PER_HOST:
            transport.abort()
            return
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._stop_waiting()
        super().connection_lost(exc)

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
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Part of the next request may have come already."""
        super().on_response_complete()
        if self.conn.trailing_data[0] and not self._is_answering():
            self._wait_for_request()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _from_same_host(self) -> int:
        own = _host(self)
        return sum(_host(connection) == own for connection in self.connections)


def _host(connection: Any) -> object:
    """The address, or an IPv6 network of the size that one customer gets."""
    client = connection.client
    if client is None:
        return None
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    return address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False)
