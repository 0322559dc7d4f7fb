"""A port of this machine's router, asked for, renewed and given back: by PCP, NAT-PMP, or UPnP's gateway device.

Nothing that a router says is believed further than that. It is asked for the very port that the registered endpoint
names, and opens it or does not; the address that it tells is compared with that endpoint and is never registered by
itself. Whoever answers in the router's place on a hostile network can keep this machine unreachable, as the router
could, and no more: whoever connects elsewhere checks the TLS key that the chain names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import TypeVar
from urllib.parse import urlsplit

from troth.chain.duty import Duty
from troth.transport.errors import RouterRefused
from troth.transport.router_datagrams import NatPmp, Pcp, default_gateway
from troth.transport.router_dialects import LEASE_SECONDS, MappedPort, RouterDialect
from troth.transport.router_upnp import UpnpGateway

log = logging.getLogger(__name__)

AGAIN_SECONDS = 30.0
SHARED = ipaddress.ip_network("100.64.0.0/10")
"""Addresses that providers give to many customers at once (RFC 6598)."""

Found = TypeVar("Found")


def routers(secret: bytes, by: str = "any", gateway: str = "") -> tuple[RouterDialect, ...]:
    """Ways to ask, the newer and simpler ones first.

    Args:
        secret: of this node; see `router_datagrams.Pcp`.
        by: "pcp", "nat-pmp", "upnp" or "any".
        gateway: the router's address; empty: that of the default route.
    """
    address = gateway or default_gateway()
    found: list[RouterDialect] = []
    if by in {"any", "pcp"} and address:
        found.append(Pcp(address, secret))
    if by in {"any", "nat-pmp"} and address:
        found.append(NatPmp(address))
    if by in {"any", "upnp"}:
        found.append(UpnpGateway((gateway, 1900) if gateway else None))
    return tuple(found)


async def first_answer(ways: Sequence[RouterDialect]) -> tuple[str, IPv4Address | None]:
    """The first way that a router answers, and its outer address where it tells one; raises RouterRefused.

    Nothing is opened, so all are asked at once.
    """
    answers = await asyncio.gather(*(router.outside() for router in ways), return_exceptions=True)
    for router, answer in zip(ways, answers, strict=True):
        if not isinstance(answer, BaseException):
            return router.way, answer
        if not isinstance(answer, RouterRefused):
            raise answer
    raise RouterRefused("no router answers", "", "Name its address: gateway in [router].")


async def _first(ways: Sequence[RouterDialect], ask: Callable[[RouterDialect], Awaitable[Found]]) -> Found:
    refusal = RouterRefused("no way to ask the router is known", "", "Name its address: gateway in [router].")
    for router in ways:
        try:
            return await ask(router)
        except RouterRefused as error:
            refusal = error
    raise refusal


def doubt_of(mapped: MappedPort, host: str, port: int) -> str:
    """Why a port that a router opened does not lead to the endpoint that is registered; empty where nothing says so."""
    if mapped.port != port:
        return f"the router gave port {mapped.port}, and {port} is registered"
    literal: object = None
    with suppress(ValueError):
        literal = ipaddress.ip_address(host)
    if literal == mapped.address:
        return ""
    if not mapped.address.is_global or mapped.address in SHARED:
        return f"the router's outer address {mapped.address} is not of the internet: another one stands before it"
    if literal is not None:
        return f"the router says that its outer address is {mapped.address}, and {host} is registered"
    return ""


# ------------------------------------------------------------------------------------------------------------ the port


class RouterPort:
    """Keeps a port of the router open from ``start`` to ``close``.

    Args:
        endpoint: https://host:port, as it is registered.
    """

    def __init__(self, ways: Sequence[RouterDialect], endpoint: str) -> None:
        found = urlsplit(endpoint)
        self._ways = tuple(ways)
        self._host, self._port = found.hostname or "", found.port or 443
        self._inside = 0
        self._pause = AGAIN_SECONDS
        self._keeping = Duty(
            "asking the router", self._ask, every=lambda: self._pause, retry=AGAIN_SECONDS, longest=AGAIN_SECONDS
        )
        self._held: tuple[RouterDialect, MappedPort] | None = None
        self._told = "the router was not asked yet"

    @property
    def trouble(self) -> str:
        """Why the port is not known to be open; empty where it is."""
        failed = self._keeping.trouble
        return f"the router failed: {failed}" if failed else self._told

    def start(self, inside: int) -> None:
        """Ask for the port, which is to lead to ``inside`` on this machine, from now on."""
        self._inside = inside
        self._keeping.start()

    async def close(self) -> None:
        """Give it back."""
        await self._keeping.stop()
        if self._held is not None:
            with suppress(RouterRefused):
                await self._held[0].close(self._inside, self._held[1].port)
                log.info("the router closed port %d", self._held[1].port)

    async def _ask(self) -> None:
        try:
            self._held = await _first(self._in_order(), self._opened)
        except RouterRefused as error:
            self._pause = AGAIN_SECONDS
            self._tell(f"the router opens no port: {error}")
            return
        mapped = self._held[1]
        # A router that promises years may forget them when it starts anew.
        lease = min(mapped.seconds or LEASE_SECONDS, LEASE_SECONDS)
        self._pause = max(lease / 2, AGAIN_SECONDS)
        self._tell(doubt_of(mapped, self._host, self._port))

    async def _opened(self, router: RouterDialect) -> tuple[RouterDialect, MappedPort]:
        mapped = await router.open(self._inside, self._port)
        if mapped.port != self._port:
            await router.close(self._inside, mapped.port)
            what = f"the router gives port {mapped.port} only, and {self._port} is registered"
            raise RouterRefused(what, router.way, "Register that port with `troth node reach`, or free this one.")
        if self._held is None:
            log.info("%s: the router leads %s:%d to this machine", mapped.way, mapped.address, mapped.port)
        return router, mapped

    def _in_order(self) -> tuple[RouterDialect, ...]:
        """That which worked before comes first."""
        held = None if self._held is None else self._held[0]
        return self._ways if held is None else (held, *(one for one in self._ways if one is not held))

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._told:
            log.warning("%s", trouble)
        self._told = trouble
