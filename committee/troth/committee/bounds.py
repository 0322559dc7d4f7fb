"""How many entries one party can bring into the directory."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from troth.committee.errors import Full


@dataclass(frozen=True, slots=True)
class Bounds:
    """Relays (and as many destinations) of one operator, one IP address, one network, and in all."""

    per_operator: int
    per_host: int
    per_network: int
    relays: int
    destinations: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants an entry, and where."""

    operator: str
    host: str


def require_room(claims: Iterable[Claim], bounds: Bounds, total: int) -> None:
    """Raise Full if these claims together exceed a bound."""
    kept = list(claims)
    if len(kept) > total:
        raise Full(f"The directory takes {total} of these", len(kept), "Try again later.")
    limits = {
        "operator": (Counter(claim.operator for claim in kept), bounds.per_operator),
        "address": (Counter(claim.host for claim in kept), bounds.per_host),
        "network": (Counter(network_of(claim.host) for claim in kept), bounds.per_network),
    }
    for name, (counts, limit) in limits.items():
        for value, count in counts.most_common(1):
            if count > limit:
                raise Full(f"One {name} has at most {limit} entries", f"{value}: {count}", "Use fewer of them.")


@lru_cache(maxsize=16_384)
def network_of(host: str) -> str:
    """The /16 of an IPv4 address, the /32 of an IPv6 one: what one provider gives to many customers."""
    address = ipaddress.ip_address(host)
    return str(ipaddress.ip_network((address, 16 if address.version == 4 else 32), strict=False))
