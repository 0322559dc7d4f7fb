"""A port of this machine's router, asked for, renewed and given back: NAT-PMP (RFC 6886), or UPnP's gateway device.

Nothing that a router says is believed further than that. It is asked for the very port that the registered endpoint
names, and opens it or does not; the address that it tells is compared with that endpoint and is never registered by
itself. Whoever answers in the router's place on a hostile network can keep this machine unreachable, as the router
could, and no more: whoever connects elsewhere checks the TLS key that the chain names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx
from async_upnp_client.client import UpnpRequester, UpnpService
from async_upnp_client.client_factory import UpnpFactory
from async_upnp_client.const import HttpRequest, HttpResponse
from async_upnp_client.exceptions import UpnpActionError, UpnpConnectionError, UpnpError
from async_upnp_client.search import async_search
from async_upnp_client.utils import CaseInsensitiveDict

from troth.transport.errors import RouterRefused

log = logging.getLogger(__name__)

LEASE_SECONDS = 3600
"""What is asked for; half of what is given is waited for. A machine that dies leaves its port open for so long."""
AGAIN_SECONDS = 30.0
NAT_PMP_PORT = 5351
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds before a question over UDP is asked again (RFC 6886, section 3.1; it goes on for longer)."""
SEARCH_SECONDS = 2
HTTP_SECONDS = 5.0
LARGEST_ANSWER = 256 * 1024
GATEWAY = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"
CONNECTIONS = ("urn:schemas-upnp-org:service:WANIPConnection:", "urn:schemas-upnp-org:service:WANPPPConnection:")
ONLY_PERMANENT = 725
"""UPnP: this router knows no leases that end."""
ROUTES = Path("/proc/net/route")
SHARED = ipaddress.ip_network("100.64.0.0/10")
"""Addresses that providers give to many customers at once (RFC 6598)."""


Found = TypeVar("Found")


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

    async def outside(self) -> IPv4Address:
        """Its outer address."""

    async def open(self, inside: int, outside: int) -> MappedPort:
        """Lead the outer TCP port to this machine's inner one."""

    async def close(self, inside: int, outside: int) -> None:
        """Undo it."""


# ------------------------------------------------------------------------------------------------------------- NAT-PMP


class NatPmp:
    """RFC 6886. The socket is connected, so that answers of nobody but the gateway are heard."""

    way = "NAT-PMP"
    _RESULTS = (
        "",
        "another version",
        "it is not allowed there",
        "it has no outer address",
        "it has no room",
        "unknown",
    )

    def __init__(self, gateway: str, port: int = NAT_PMP_PORT) -> None:
        self._place = gateway, port

    async def outside(self) -> IPv4Address:
        (answer,) = struct.unpack(">4s", await self._ask(struct.pack(">BB", 0, 0), 0, 4))
        return IPv4Address(answer)

    async def open(self, inside: int, outside: int) -> MappedPort:
        found = await self._mapped(inside, outside, LEASE_SECONDS)
        return MappedPort(self.way, await self.outside(), *found)

    async def close(self, inside: int, outside: int) -> None:
        await self._mapped(inside, 0, 0)

    async def _mapped(self, inside: int, outside: int, seconds: int) -> tuple[int, int]:
        asked = struct.pack(">BBHHHI", 0, 2, 0, inside, outside, seconds)
        port, given, lease = struct.unpack(">HHI", await self._ask(asked, 2, 8))
        if port != inside:
            raise RouterRefused("the router answers about another port", port, "Try again.")
        return given, lease

    async def _ask(self, question: bytes, operation: int, size: int) -> bytes:
        """What follows the head of the answer, ``size`` bytes."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.setblocking(False)
            try:
                line.connect(self._place)
                for pause in PAUSES:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await loop.sock_sendall(line, question)
                            return await self._answer(line, operation, size)
            except OSError as error:
                raise RouterRefused("the router does not speak NAT-PMP", error, "Forward the port by hand.") from error
        raise RouterRefused("the router does not answer NAT-PMP", self._place[0], "Forward the port by hand.")

    async def _answer(self, line: socket.socket, operation: int, size: int) -> bytes:
        while True:
            answer = await asyncio.get_running_loop().sock_recv(line, 64)
            if len(answer) < 8:
                continue
            version, said, result = struct.unpack(">BBH", answer[:4])
            if said != 128 + operation:
                continue
            if version or result or len(answer) < 8 + size:
                why = self._RESULTS[min(result, len(self._RESULTS) - 1)] or "its answer is malformed"
                raise RouterRefused(f"the router opens no port by NAT-PMP: {why}", result, "Forward it by hand.")
            return answer[8 : 8 + size]


def default_gateway(routes: Path = ROUTES) -> str:
    """The router of this machine's default route as Linux tells it; empty where that cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in routes.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1] == "00000000" and int(fields[3], 16) & 2:
                return str(IPv4Address(struct.pack("<I", int(fields[2], 16))))
    return ""


# ---------------------------------------------------------------------------------------------------------------- UPnP


class _Requests(UpnpRequester):
    """HTTP to one host, bounded: what a description names elsewhere is asked nothing."""

    def __init__(self, host: str) -> None:
        self._host = host

    async def async_http_request(self, http_request: HttpRequest) -> HttpResponse:
        if urlsplit(http_request.url).hostname != self._host:
            raise UpnpConnectionError(message=f"the router names another host: {http_request.url[:80]}")
        try:
            async with asyncio.timeout(HTTP_SECONDS), httpx.AsyncClient(trust_env=False) as client:
                content = (http_request.body or "").encode()
                headers = dict(http_request.headers)
                async with client.stream(
                    http_request.method, http_request.url, headers=headers, content=content
                ) as answer:
                    body = bytearray()
                    async for piece in answer.aiter_raw():
                        body += piece
                        if len(body) > LARGEST_ANSWER:
                            raise UpnpConnectionError(message="the router's answer is too large")
                    return HttpResponse(answer.status_code, dict(answer.headers), body.decode("utf-8", "replace"))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise UpnpConnectionError(message=str(error) or "no answer in time") from error


class UpnpGateway:
    """The first gateway device that answers in the local network; ``target`` is asked instead of all."""

    way = "UPnP"

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self._target = target
        self._connection: UpnpService | None = None
        self._own = ""

    async def outside(self) -> IPv4Address:
        said = await self._call("GetExternalIPAddress")
        try:
            return IPv4Address(str(said.get("NewExternalIPAddress")))
        except ValueError as error:
            raise RouterRefused("the router tells no outer address", "UPnP", "Forward the port by hand.") from error

    async def open(self, inside: int, outside: int) -> MappedPort:
        await self._find()
        lease = LEASE_SECONDS
        try:
            await self._add(inside, outside, lease)
        except RouterRefused as error:
            if error.value != ONLY_PERMANENT:
                raise
            lease = 0
            await self._add(inside, outside, lease)
        return MappedPort(self.way, await self.outside(), outside, lease)

    async def close(self, inside: int, outside: int) -> None:
        await self._call("DeletePortMapping", NewRemoteHost="", NewExternalPort=outside, NewProtocol="TCP")

    async def _add(self, inside: int, outside: int, lease: int) -> None:
        await self._call(
            "AddPortMapping",
            NewRemoteHost="",
            NewExternalPort=outside,
            NewProtocol="TCP",
            NewInternalPort=inside,
            NewInternalClient=self._own,
            NewEnabled=True,
            NewPortMappingDescription="Troth node",
            NewLeaseDuration=lease,
        )

    async def _call(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            return dict(await (await self._find()).action(action).async_call(**arguments))
        except UpnpActionError as error:
            raise RouterRefused("the router refuses by UPnP", error.error_code, "Forward the port by hand.") from error
        except (UpnpError, KeyError, ValueError) as error:
            self._connection = None
            raise _unusable(error) from error

    async def _find(self) -> UpnpService:
        if self._connection is None:
            host, location = await self._search()
            try:
                device = await UpnpFactory(_Requests(host), non_strict=True).async_create_device(location)
            except UpnpError as error:
                raise _unusable(error) from error
            found = [one for one in device.all_services if one.service_type.startswith(CONNECTIONS)]
            if not found:
                raise RouterRefused("the router opens no ports by UPnP", host, "Forward the port by hand.")
            self._connection, self._own = found[0], _own_address(host)
        return self._connection

    async def _search(self) -> tuple[str, str]:
        """Host and description of the first who answers from the local network and names itself."""
        found: asyncio.Queue[tuple[str, str]] = asyncio.Queue(16)

        async def heard(headers: CaseInsensitiveDict) -> None:
            host, location = str(headers.get("_host", "")), str(headers.get("location", ""))
            with suppress(ValueError, asyncio.QueueFull):
                if urlsplit(location).hostname == host and ipaddress.ip_address(host).is_private:
                    found.put_nowait((host, location))

        with suppress(OSError):
            await async_search(heard, SEARCH_SECONDS, GATEWAY, target=self._target)
        if found.empty():
            raise RouterRefused("no router answers UPnP", "", "Forward the port by hand.")
        return found.get_nowait()


def _unusable(error: Exception) -> RouterRefused:
    return RouterRefused("the router's UPnP cannot be used", str(error)[:200], "Forward the port by hand.")


def _own_address(router: str) -> str:
    """This machine's address on the way to the router."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((router, 9))
        return str(line.getsockname()[0])


def routers(by: str = "any", gateway: str = "") -> tuple[RouterDialect, ...]:
    """Ways to ask, the simpler one first. ``by``: "nat-pmp", "upnp" or "any"; ``gateway``: the router's address."""
    address = gateway or default_gateway()
    found: list[RouterDialect] = []
    if by != "upnp" and address:
        found.append(NatPmp(address))
    if by != "nat-pmp":
        found.append(UpnpGateway((gateway, 1900) if gateway else None))
    return tuple(found)


async def first_answer(ways: Sequence[RouterDialect]) -> tuple[str, IPv4Address]:
    """The first way that a router answers, and its outer address; raises RouterRefused. Nothing is opened."""
    return await _first(ways, _asked)


async def _asked(router: RouterDialect) -> tuple[str, IPv4Address]:
    return router.way, await router.outside()


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
        self._keeping: asyncio.Task[None] | None = None
        self._held: tuple[RouterDialect, MappedPort] | None = None
        self.trouble = "the router was not asked yet"
        """Why the port is not known to be open; empty where it is."""

    def start(self, inside: int) -> None:
        """Ask for the port, which is to lead to ``inside`` on this machine, from now on."""
        self._inside = inside
        self._keeping = asyncio.create_task(self._keep(), name="port of the router")

    async def close(self) -> None:
        """Give it back."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._held is not None:
            with suppress(RouterRefused):
                await self._held[0].close(self._inside, self._held[1].port)
                log.info("the router closed port %d", self._held[1].port)

    async def _keep(self) -> None:
        while True:
            try:
                self._held = await _first(self._in_order(), self._opened)
            except RouterRefused as error:
                self._tell(f"the router opens no port: {error}")
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            mapped = self._held[1]
            self._tell(doubt_of(mapped, self._host, self._port))
            await asyncio.sleep(max((mapped.seconds or LEASE_SECONDS) / 2, AGAIN_SECONDS))

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
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble
