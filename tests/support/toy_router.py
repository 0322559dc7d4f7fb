"""Routers on loopback sockets: one speaks PCP, one NAT-PMP, one is a UPnP gateway. A test may have them lie."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from troth.transport.server import TlsServer, serving

OUTER = IPv4Address("198.41.0.4")
_CONTROL = "urn:schemas-upnp-org:service:WANIPConnection:1"
_ENVELOPE = (
    '<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" '
    's:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>{inner}</s:Body></s:Envelope>'
)
_FAULT = _ENVELOPE.format(
    inner="<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>"
    '<UPnPError xmlns="urn:schemas-upnp-org:control-1-0"><errorCode>{code}</errorCode>'
    "<errorDescription>no</errorDescription></UPnPError></detail></s:Fault>"
)
_DESCRIPTION = """<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><specVersion><major>1</major><minor>0</minor></specVersion>
<device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType>
<friendlyName>toy</friendlyName><manufacturer>toy</manufacturer><modelName>toy</modelName><UDN>uuid:toy</UDN>
<serviceList><service><serviceType>{service}</serviceType><serviceId>urn:upnp-org:serviceId:WANIPConn1</serviceId>
<SCPDURL>/actions.xml</SCPDURL><controlURL>{control}</controlURL><eventSubURL>/events</eventSubURL></service>
</serviceList></device></root>"""


class NatPmpRouter(asyncio.DatagramProtocol):
    """``ports`` by inner port. ``silent``: so many questions are lost first."""

    def __init__(self) -> None:
        self.ports: dict[int, tuple[int, int]] = {}
        self.address = OUTER
        self.result = 0
        self.moves = 0
        self.silent = 0
        self.heard: list[bytes] = []
        self.before: list[bytes] = []
        """Datagrams that are sent before each answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.append(data)
        if self.silent:
            self.silent -= 1
            return
        for one in self.before:
            self._transport.sendto(one, addr)
        version, operation = data[:2]
        if version:
            self._transport.sendto(struct.pack(">BBHI", 0, 128 + operation, 1, 1), addr)
            return
        head = struct.pack(">BBHI", 0, 128 + operation, self.result, 1)
        if operation == 0:
            self._transport.sendto(head + self.address.packed, addr)
            return
        _, inside, outside, seconds = struct.unpack(">HHHI", data[2:12])
        if seconds:
            self.ports[inside] = outside + self.moves, seconds
        else:
            self.ports.pop(inside, None)
        self._transport.sendto(head + struct.pack(">HHI", inside, outside + self.moves, seconds), addr)


@asynccontextmanager
async def nat_pmp_router(port: int = 0) -> AsyncIterator[tuple[NatPmpRouter, int]]:
    transport, router = await asyncio.get_running_loop().create_datagram_endpoint(
        NatPmpRouter, local_addr=("127.0.0.1", port)
    )
    try:
        yield router, transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


class PcpRouter(asyncio.DatagramProtocol):
    """RFC 6887's MAP and ANNOUNCE. ``ports``: by inner port nonce, outer port and seconds.

    It does what a router has to: a mapping belongs to its nonce, and the client's address is compared.
    """

    def __init__(self) -> None:
        self.ports: dict[int, tuple[bytes, int, int]] = {}
        self.address = IPv6Address(f"::ffff:{OUTER}")
        self.result = 0
        self.moves = 0
        self.silent = 0
        self.longest = 1 << 31
        self.announced = 0
        self.bent: Callable[[bytes], list[bytes]] = lambda answer: [answer]
        """What is sent in place of an answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self.silent:
            self.silent -= 1
            return
        version, operation, reserved, seconds, client = struct.unpack(">BBHI16s", data[:24])
        assert (version, reserved, len(data) % 4) == (2, 0, 0)
        result = self.result or (0 if IPv6Address(client) == IPv6Address(f"::ffff:{addr[0]}") else 12)
        if operation == 0:
            self.announced += 1
            said = b""
        else:
            result, seconds, said = self._map(result, seconds, data[24:])
        for one in self.bent(struct.pack(">BBBBII12x", 2, 128 | operation, 0, result, seconds, 7) + said):
            self._transport.sendto(one, addr)

    def _map(self, result: int, seconds: int, asked: bytes) -> tuple[int, int, bytes]:
        nonce, protocol, inside, outside, suggested = struct.unpack(">12sB3xHH16s", asked)
        assert protocol == 6
        assert IPv6Address(suggested).ipv4_mapped == IPv4Address(0)
        held = self.ports.get(inside)
        if held is not None and held[0] != nonce:
            result = 2
        if result:
            return result, 30, asked
        if not seconds:
            self.ports.pop(inside, None)
            return 0, 0, asked
        given = outside + self.moves
        self.ports[inside] = nonce, given, min(seconds, self.longest)
        return 0, self.ports[inside][2], struct.pack(">12sB3xHH16s", nonce, 6, inside, given, self.address.packed)


@asynccontextmanager
async def pcp_router(port: int = 0) -> AsyncIterator[tuple[PcpRouter, int]]:
    transport, router = await asyncio.get_running_loop().create_datagram_endpoint(
        PcpRouter, local_addr=("127.0.0.1", port)
    )
    try:
        yield router, transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


@dataclass
class UpnpRouter:
    """``leases``: outer ports with inner port, machine and seconds."""

    leases: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    address: str = str(OUTER)
    permanent_only: bool = False
    refuses: int = 0
    padding: int = 0
    control: str = "/control"
    location: str = ""
    asked: list[str] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/description.xml")
        async def description() -> Response:
            return _xml(
                _DESCRIPTION.format(service=_CONTROL, control=self.control) + "<!--" + "x" * self.padding + "-->"
            )

        @app.get("/actions.xml")
        async def actions() -> Response:
            return _xml(_ACTIONS)

        @app.post("/control")
        async def control(request: Request) -> Response:
            body = (await request.body()).decode()
            action = request.headers["soapaction"].strip('"').rpartition("#")[2]
            self.asked.append(action)
            return self._done(action, dict(re.findall(r"<(New\w+)>([^<]*)</", body)))

        return app

    def _done(self, action: str, told: dict[str, str]) -> Response:
        if action == "GetExternalIPAddress":
            return _said(action, f"<NewExternalIPAddress>{self.address}</NewExternalIPAddress>")
        outside = int(told["NewExternalPort"])
        if action == "DeletePortMapping":
            del self.leases[outside]
            return _said(action, "")
        seconds = int(told["NewLeaseDuration"])
        code = 725 if self.permanent_only and seconds else self.refuses
        if code:
            return _xml(_FAULT.format(code=code), 500)
        self.leases[outside] = int(told["NewInternalPort"]), told["NewInternalClient"], seconds
        return _said(action, "")


class _Ssdp(asyncio.DatagramProtocol):
    def __init__(self, router: UpnpRouter, port: int) -> None:
        self._router, self._port = router, port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert data.startswith(b"M-SEARCH")
        location = self._router.location or f"http://127.0.0.1:{self._port}/description.xml"
        kind = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"
        answer = f"HTTP/1.1 200 OK\r\nST: {kind}\r\nUSN: uuid:toy::{kind}\r\nLOCATION: {location}\r\nEXT:\r\n\r\n"
        self._transport.sendto(answer.encode(), addr)


@asynccontextmanager
async def upnp_router() -> AsyncIterator[tuple[UpnpRouter, tuple[str, int]]]:
    router = UpnpRouter()
    async with serving(TlsServer(router.app(), None, "127.0.0.1", 0)) as server:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Ssdp(router, server.port), local_addr=("127.0.0.1", 0)
        )
        try:
            yield router, transport.get_extra_info("sockname")
        finally:
            transport.close()


def _xml(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/xml")


def _said(action: str, inner: str) -> Response:
    return _xml(_ENVELOPE.format(inner=f'<u:{action}Response xmlns:u="{_CONTROL}">{inner}</u:{action}Response>'))


def _action(name: str, *arguments: tuple[str, str]) -> str:
    shown = "".join(
        f"<argument><name>{argument}</name><direction>{way}</direction>"
        f"<relatedStateVariable>{argument[3:]}</relatedStateVariable></argument>"
        for argument, way in arguments
    )
    return f"<action><name>{name}</name><argumentList>{shown}</argumentList></action>"


_TYPES = {
    "RemoteHost": "string", "ExternalPort": "ui2", "Protocol": "string", "InternalPort": "ui2",
    "Enabled": "boolean", "InternalClient": "string", "PortMappingDescription": "string", "LeaseDuration": "ui4",
    "ExternalIPAddress": "string",
}  # fmt: skip
_NAMES = (
    "NewRemoteHost", "NewExternalPort", "NewProtocol", "NewInternalPort", "NewInternalClient", "NewEnabled",
    "NewPortMappingDescription", "NewLeaseDuration",
)  # fmt: skip
_ACTIONS = (
    '<?xml version="1.0"?><scpd xmlns="urn:schemas-upnp-org:service-1-0"><actionList>'
    + _action("AddPortMapping", *((name, "in") for name in _NAMES))
    + _action("DeletePortMapping", *((name, "in") for name in _NAMES[:3]))
    + _action("GetExternalIPAddress", ("NewExternalIPAddress", "out"))
    + "</actionList><serviceStateTable>"
    + "".join(
        f'<stateVariable sendEvents="no"><name>{name}</name><dataType>{kind}</dataType></stateVariable>'
        for name, kind in _TYPES.items()
    )
    + "</serviceStateTable></scpd>"
)
