"""A listening socket that bounds what strangers hold before their TLS handshake is over.

A server of asyncio takes every connection and waits a minute for its handshake, so anybody can hold as many file
descriptors as there are. Here a connection has its place, or is closed before TLS costs anything, and few seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from troth.transport.errors import ChannelUnavailable

log = logging.getLogger(__name__)

ACCEPT_PAUSE = 0.1
"""Seconds until the next try where the process has no file descriptor left."""
ACCEPTED_AT_ONCE = 64
"""Most connections that are taken before the event loop does other work."""

Admits = Callable[["TlsListener", str], bool]


class TlsListener:
    """Accepts connections for one endpoint; `close` it.

    Args:
        listening: a socket that listens, see `listening_socket`; it is closed by whoever made it.
        context: of the server's side of TLS; None for plain TCP.
        made: the protocol of a connection from a host that was let in.
        admits: whether one more may come from a host; it is asked before the handshake.
        seconds: for the handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        made: Callable[[str], asyncio.Protocol],
        admits: Admits,
        *,
        seconds: float,
    ) -> None:
        self._context = context
        self._made = made
        self._admits = admits
        self._seconds = seconds if context is not None else None
        self._hosts: Counter[str] = Counter()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening, self._accept)

    @property
    def handshakes(self) -> int:
        """Connections whose handshake is not over."""
        return len(self._handshakes)

    def handshakes_from(self, host: str) -> int:
        """Of these, the ones from one host."""
        return self._hosts[host]

    def cut_oldest(self) -> None:
        """End the handshake that has gone on for longest."""
        oldest = next(iter(self._handshakes), None)
        if oldest is not None:
            del self._handshakes[oldest]
            oldest.cancel()

    def stop_accepting(self) -> None:
        """Take nobody more; handshakes go on. Call it before the socket is closed."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
        if self._again is not None:
            self._again.cancel()

    def close(self) -> None:
        """Take nobody more, and cut off whoever is in a handshake."""
        self.stop_accepting()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when no handshake goes on."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Out of file descriptors: the connection stays in the backlog until some are free.
                log.warning("a connection could not be accepted: %s", error)
                self._loop.remove_reader(self._listening)
                self._again = self._loop.call_later(ACCEPT_PAUSE, self._loop.add_reader, self._listening, self._accept)
                return
            self._came(connection, customer_of(peer))

    def _came(self, connection: socket.socket, host: str) -> None:
        """Somebody connected: turn them away, or begin the handshake."""
        if not self._admits(self, host):
            connection.close()
            return
        connection.setblocking(False)
        self._hosts[host] += 1
        task = asyncio.create_task(self._shake_hands(connection, host))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._over(done, host))

    async def _shake_hands(self, connection: socket.socket, host: str) -> None:
        try:
            # Answers are small and a token waits for each: never hold one back for a fuller packet.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: self._made(host), connection, ssl=self._context, ssl_handshake_timeout=self._seconds
            )
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("a TLS handshake failed: %s", error)

    def _over(self, task: asyncio.Task[None], host: str) -> None:
        self._handshakes.pop(task, None)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises ChannelUnavailable if the address is taken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ChannelUnavailable(
            f"Cannot listen on {host}:{port}", error, "Choose another port, or stop its owner."
        ) from error
    made.setblocking(False)
    return made


def require_free(host: str, port: int, setting: str) -> None:
    """Look before the seconds of a start whether a port can be listened on.

    Args:
        host, port: where a server is about to listen; port 0 is always free.
        setting: what its user changes to listen elsewhere, such as "listen.port in node.toml".

    Raises:
        ChannelUnavailable: another program listens there, or this machine has no such address.
    """
    try:
        listening_socket(host, port).close()
    except ChannelUnavailable as error:
        # First: this program may run already, and a second one with its keys must not be started elsewhere.
        remedy = f"Stop what holds the port, perhaps this program itself, or change {setting}."
        raise ChannelUnavailable(error.what, error.value, remedy) from error


def customer_of(peer: Any) -> str:
    """Whose a connection is, by its peer's (address, port, …): the address, or the IPv6 network that one customer gets.

    An IPv6 customer has a /64 at least, and may use any address of it. What is no address stands for itself.
    """
    if peer is None:
        return ""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return str(peer[0])
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))
