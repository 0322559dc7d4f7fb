"""One port for HTTPS and for other protocols over TLS, told apart by the name that both ends agree on (ALPN).

A party that is lent a single port takes requests and deliveries of the overlay there (docs/adr/0020-tunnels.md). The
name is agreed within the TLS handshake, which ends at the party itself: whoever passes the bytes on can neither read
nor change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

HTTP = "http/1.1"

MadeProtocol = Callable[[], asyncio.Protocol]


class SharedPort:
    """What a server speaks beside HTTPS; give it to `server.TlsServer`.

    Args:
        names: ALPN names that are offered from the start. Who asks for one that nobody serves yet is cut off.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._serving: dict[str, MadeProtocol] = {}

    @property
    def offered(self) -> list[str]:
        """All names, HTTP's among them, the first one preferred."""
        return [*self._names, HTTP]

    @contextmanager
    def serving(self, name: str, made: MadeProtocol) -> Iterator[None]:
        """Inside the block each connection that asks for this name gets a protocol of its own."""
        self._serving[name] = made
        try:
            yield
        finally:
            del self._serving[name]

    def beside(self, http: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.Protocol]:
        """A factory for all connections of the port; ``http`` makes the protocol of those that ask for no other."""

        def arriving(**arguments: Any) -> asyncio.Protocol:
            return _ArrivingConnection(self, lambda: http(**arguments))

        return arriving

    def protocol(self, name: str | None, http: MadeProtocol) -> asyncio.Protocol | None:
        """The protocol of a connection that agreed on a name, or on none; None where it is not served."""
        if name not in self._names:
            return http()
        made = self._serving.get(name)
        return None if made is None else made()


class _ArrivingConnection(asyncio.Protocol):
    """A connection until its handshake is over."""

    def __init__(self, port: SharedPort, http: MadeProtocol) -> None:
        self._port = port
        self._http = http

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        line = cast(asyncio.Transport, transport)
        tls = line.get_extra_info("ssl_object")
        made = self._port.protocol(None if tls is None else tls.selected_alpn_protocol(), self._http)
        if made is None:
            line.abort()
            return
        line.set_protocol(made)
        made.connection_made(line)
