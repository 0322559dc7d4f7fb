"""What a relay lends to strangers, and for how long."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Counts, bytes and seconds (docs/reference/overlay.md, "Denial of service", says what each one is for).

    Args:
        links, links_per_host: accepted connections, TLS handshakes included.
        tls_handshakes, tls_handshakes_per_host: of these, not yet through their handshake.
        tls_seconds: for a TLS handshake.
        circuits: at once.
        half_open: circuits whose client has not shown yet that it holds the keys; the oldest gives way.
        extending: set-ups towards the next relay at once.
        setups_per_second, setup_burst: all links together.
        link_setups_per_second, link_setup_burst: of one link.
        backlog_bytes: cells that wait for a full link, all circuits together; beyond it the circuit of the oldest goes.
        circuit_backlog_bytes: of one circuit and direction; an honest one stays below its window of 1 MiB.
        circuit_bytes, circuit_seconds: after which a circuit must have been rotated.
        idle_seconds: without a cell.
        half_open_seconds, extend_seconds: for the first valid cell, and for the next relay's answer.
        message_bytes, open_messages: of one circuit, at the proxy.
        messages_bytes, message_seconds: of incomplete messages, all circuits together, and of each.
        exchanges_per_circuit, exchange_seconds: messages that wait for answers, and for how long.
        reply_bytes: of answers that wait for a circuit's window.
    """

    links: int = 1024
    links_per_host: int = 128
    tls_handshakes: int = 64
    tls_handshakes_per_host: int = 16
    tls_seconds: float = 5.0
    circuits: int = 8192
    half_open: int = 512
    extending: int = 256
    setups_per_second: float = 500.0
    setup_burst: float = 1000.0
    link_setups_per_second: float = 50.0
    link_setup_burst: float = 200.0
    backlog_bytes: int = 64 * 2**20
    circuit_backlog_bytes: int = 2 * 2**20
    circuit_bytes: int = 8 * 2**30
    circuit_seconds: float = 4 * 3600.0
    idle_seconds: float = 900.0
    half_open_seconds: float = 10.0
    extend_seconds: float = 10.0
    message_bytes: int = 2**20
    open_messages: int = 8
    messages_bytes: int = 64 * 2**20
    message_seconds: float = 30.0
    exchanges_per_circuit: int = 64
    exchange_seconds: float = 600.0
    reply_bytes: int = 4 * 2**20


class TokenBucket:
    """`rate` permits a second, at most `burst` saved up."""

    __slots__ = ("_burst", "_level", "_rate", "_since")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._level, self._since = burst, now

    def take(self, now: float, permits: float = 1) -> bool:
        """Use so many permits, if they are there; none otherwise."""
        self._level = min(self._burst, self._level + (now - self._since) * self._rate)
        self._since = now
        if self._level < permits:
            return False
        self._level -= permits
        return True


class SeenShares:
    """The ephemeral keys of the last set-ups: a repeated one is refused before it costs a public-key operation."""

    def __init__(self, capacity: int = 65_536) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def first_time(self, share: bytes) -> bool:
        """Note a share; False if it was noted before."""
        if share in self._seen:
            return False
        self._seen[share] = None
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return True
