"""Where a relay is connected to: bounds connections before they may cost a TLS handshake."""

from __future__ import annotations

import socket
from collections import Counter

from troth.overlay.circuits.link import Link, link_server_context
from troth.overlay.relay.switch import Switch
from troth.transport.identity import TlsIdentity
from troth.transport.listener import TlsListener, listening_socket


class LinkListener:
    """Accepts links for a Switch."""

    def __init__(self, switch: Switch, identity: TlsIdentity) -> None:
        self._switch = switch
        self._context = link_server_context(identity)
        self._socket: socket.socket | None = None
        self._listener: TlsListener | None = None
        self._hosts: Counter[str] = Counter()
        self.links: dict[Link, None] = {}

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises ChannelUnavailable if the address is taken."""
        self._socket = listening_socket(host, port)
        seconds = self._switch.limits.tls_seconds
        self._listener = TlsListener(self._socket, self._context, self._link, self._admits, seconds=seconds)
        return int(self._socket.getsockname()[1])

    def stop_listening(self) -> None:
        """Take no more links."""
        if self._listener is not None and self._socket is not None:
            self._listener.stop_accepting()
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Close every link."""
        self.stop_listening()
        if self._listener is not None:
            self._listener.close()
        for link in list(self.links):
            link.close()

    def _admits(self, listener: TlsListener, host: str) -> bool:
        limits, shaking = self._switch.limits, listener.handshakes_from(host)
        admitted = (
            len(self.links) + listener.handshakes < limits.links
            and listener.handshakes < limits.tls_handshakes
            and self._hosts[host] + shaking < limits.links_per_host
            and shaking < limits.tls_handshakes_per_host
        )
        if not admitted:
            self._switch.metrics.turned_away.inc()
        return admitted

    def _link(self, host: str) -> Link:
        link = Link(_Accepted(self, self._switch), dialed=False, on_open=self._entered)
        link.host = host
        return link

    def _entered(self, link: Link) -> None:
        self.links[link] = None
        self._hosts[link.host] += 1

    def left(self, link: Link) -> None:
        """A link is gone."""
        if link in self.links:
            del self.links[link]
            self._hosts[link.host] -= 1
            if not self._hosts[link.host]:
                del self._hosts[link.host]


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
