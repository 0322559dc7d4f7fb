"""How likely a relay is drawn, and which network it is in.

A relay says itself how much bandwidth it offers, so the word is worth at most four times what is usual: a lie cannot
buy traffic. A relay counts fully only after a week in the directory: a crowd that arrives today takes little today,
and its operators pay for a week first. The usual bandwidth is the median by age, so that the same crowd cannot move
that either.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from functools import lru_cache

from troth.overlay.directory.listing import ListedRelay

MOST_MEDIANS = 4
FULL_AGE = 7 * 86_400
"""Seconds until a relay counts fully."""
YOUNGEST = 0.05
"""What a new relay counts. Not zero: in a network that is new itself, all are young."""


def weights(relays: Sequence[ListedRelay], now: int) -> list[float]:
    """One positive weight per relay: min(bandwidth, 4 x median) x age factor. `now` in Unix seconds."""
    ages = [min(1.0, max(YOUNGEST, (now - listed.since) / FULL_AGE)) for listed in relays]
    offered = [max(1, listed.bandwidth) for listed in relays]
    most = MOST_MEDIANS * _median(offered, ages)
    return [min(bandwidth, most) * age for bandwidth, age in zip(offered, ages, strict=True)]


def _median(values: Sequence[int], shares: Sequence[float]) -> int:
    half = sum(shares) / 2
    for value, share in sorted(zip(values, shares, strict=True)):
        half -= share
        if half <= 0:
            return value
    return max(values, default=1)


@lru_cache(maxsize=65_536)
def network_of(host: str) -> str:
    """The /16 of an IPv4 address, the /32 of an IPv6 one, or the last two labels of a name.

    Every way to write an IPv4 address that a resolver takes counts as that address ("10.1", "0x0a000001", IPv6 around
    it): another spelling must not make another network. Two labels are too few for some registries ("co.uk"): that
    takes names together that belong to different parties, never the other way round.
    """
    address = _address(host)
    if address is None:
        return ".".join(host.rstrip(".").lower().split(".")[-2:])
    if isinstance(address, ipaddress.IPv4Address):
        return str(ipaddress.IPv4Network((address, 16), strict=False))
    return str(ipaddress.IPv6Network((address, 32), strict=False))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bare = host.strip("[]").rstrip(".")
    try:
        address = ipaddress.ip_address(bare.split("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))
        except (OSError, UnicodeError):
            return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or address
    return address
