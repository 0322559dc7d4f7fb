"""Where a relay is connected to: bounds connections before they may cost a TLS handshake."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter

from troth.overlay.circuits.link import Link, link_server_context
from troth.overlay.relay.switch import Switch
from troth.transport.errors import ChannelUnavailable
from troth.transport.identity import TlsIdentity

log = logging.getLogger(__name__)

_ACCEPT_PAUSE = 0.1


class LinkListener:
    """Accepts links for a Switch."""

    def __init__(self, switch: Switch, identity: TlsIdentity) -> None:
        self._switch = switch
        self._context = link_server_context(identity)
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._hosts: Counter[str] = Counter()
        self._handshakes: dict[asyncio.Task[None], str] = {}
        self.links: dict[Link, None] = {}

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises ChannelUnavailable if the address is taken."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise ChannelUnavailable(f"Cannot listen on {host}:{port}", error, "Choose another port.") from error
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._socket))
        return int(self._socket.getsockname()[1])

    async def stop_listening(self) -> None:
        """Take no more links."""
        accepting, self._accepting = self._accepting, None
        if accepting is not None:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Close every link."""
        for task in self._handshakes:
            task.cancel()
        for link in list(self.links):
            link.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:
                # Out of file descriptors: the connection stays in the backlog until some are free.
                log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE)
            else:
                self._came(connection, _network_of(str(peer[0])))

    def _came(self, connection: socket.socket, host: str) -> None:
        """Somebody connected: turn them away, or begin the TLS handshake."""
        limits = self._switch.limits
        if (
            len(self.links) + len(self._handshakes) >= limits.links
            or len(self._handshakes) >= limits.tls_handshakes
            or self._hosts[host] >= limits.links_per_host
            or sum(one == host for one in self._handshakes.values()) >= limits.tls_handshakes_per_host
        ):
            self._switch.metrics.turned_away.inc()
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._hosts[host] += 1
        task = asyncio.create_task(self._shake_hands(connection, host))
        self._handshakes[task] = host
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, connection: socket.socket, host: str) -> None:
        link = Link(_Accepted(self, self._switch), dialed=False, on_open=self._entered)
        link.host = host
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: link, connection, ssl=self._context, ssl_handshake_timeout=self._switch.limits.tls_seconds
            )
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("a TLS handshake failed: %s", error)
        finally:
            if link not in self.links and link.host:
                self._leave(link.host)

    def _entered(self, link: Link) -> None:
        self.links[link] = None

    def left(self, link: Link) -> None:
        """A link is gone."""
        if link in self.links:
            del self.links[link]
            self._leave(link.host)
            link.host = ""

    def _leave(self, host: str) -> None:
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


class _Accepted:
    """Tells the listener when an accepted link ends, and the switch everything."""

    def __init__(self, listener: LinkListener, switch: Switch) -> None:
        self._listener = listener
        self.cell_came = switch.cell_came
        self.batch_ended = switch.batch_ended
        self.link_ready = switch.link_ready
        self._switch = switch

    def link_lost(self, link: Link) -> None:
        self._listener.left(link)
        self._switch.link_lost(link)


def _network_of(peer: str) -> str:
    """The peer's address, or the IPv6 network of the size that one customer gets."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))
