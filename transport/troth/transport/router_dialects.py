"""What all ways to ask a router for a port have in common."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

LEASE_SECONDS = 3600
"""What is asked for; half of what is given is waited for. A machine that dies leaves its port open for so long."""


@dataclass(frozen=True, slots=True)
class MappedPort:
    """What a router says that it opened: ``port`` of its outer ``address``, for so many seconds; 0: until told."""

    way: str
    address: IPv4Address
    port: int
    seconds: int


class RouterDialect(Protocol):
    """One way to ask a router; each method raises RouterRefused."""

    way: str

    async def outside(self) -> IPv4Address | None:
        """Its outer address; None where this way tells it with an open port only."""

    async def open(self, inside: int, outside: int) -> MappedPort:
        """Lead the outer TCP port to this machine's inner one."""

    async def close(self, inside: int, outside: int) -> None:
        """Undo it."""
