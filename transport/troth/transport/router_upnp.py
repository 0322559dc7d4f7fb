"""Asking a router for a port by UPnP's gateway device: found by a search in the local network, asked over HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any
from urllib.parse import urlsplit

import httpx
from async_upnp_client.client import UpnpRequester, UpnpService
from async_upnp_client.client_factory import UpnpFactory
from async_upnp_client.const import HttpRequest, HttpResponse
from async_upnp_client.exceptions import UpnpActionError, UpnpConnectionError, UpnpError
from async_upnp_client.search import SsdpSearchListener
from async_upnp_client.utils import CaseInsensitiveDict

from troth.transport.errors import RouterRefused
from troth.transport.router_dialects import LEASE_SECONDS, MappedPort

SEARCH_SECONDS = 2
HTTP_SECONDS = 5.0
LARGEST_ANSWER = 256 * 1024
GATEWAY = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"
CONNECTIONS = ("urn:schemas-upnp-org:service:WANIPConnection:", "urn:schemas-upnp-org:service:WANPPPConnection:")
ONLY_PERMANENT = 725
"""UPnP: this router knows no leases that end."""


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
                own = _own_address(host)
            except (UpnpError, OSError, KeyError, ValueError) as error:
                raise _unusable(error) from error
            found = [one for one in device.all_services if one.service_type.startswith(CONNECTIONS)]
            if not found:
                raise RouterRefused("the router opens no ports by UPnP", host, "Forward the port by hand.")
            self._connection, self._own = found[0], own
        return self._connection

    async def _search(self) -> tuple[str, str]:
        """Host and description of the first who answers from the local network and names itself."""
        found: asyncio.Queue[tuple[str, str]] = asyncio.Queue(16)

        async def heard(headers: CaseInsensitiveDict) -> None:
            host, location = str(headers.get("_host", "")), str(headers.get("location", ""))
            with suppress(ValueError, asyncio.QueueFull):
                if urlsplit(location).hostname == host and ipaddress.ip_address(host).is_private:
                    found.put_nowait((host, location))

        async def ask() -> None:
            search.async_search()

        search = SsdpSearchListener(
            heard, timeout=SEARCH_SECONDS, search_target=GATEWAY, target=self._target, async_connect_callback=ask
        )
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await search.async_start()
                return await found.get()
        except (OSError, TimeoutError) as error:
            raise RouterRefused("no router answers UPnP", "", "Forward the port by hand.") from error
        finally:
            search.async_stop()


def _unusable(error: Exception) -> RouterRefused:
    return RouterRefused("the router's UPnP cannot be used", str(error)[:200], "Forward the port by hand.")


def _own_address(router: str) -> str:
    """This machine's address on the way to the router."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((router, 9))
        return str(line.getsockname()[0])
