"""A scheduler's server that lends ports to nodes, over real sockets and TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from support.waiting import eventually

from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.testnet.ports import free_port
from troth.transport.errors import TunnelRefused
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer, serving
from troth.transport.tunnel_client import Lender
from troth.transport.tunnel_server import TunnelLimits, TunnelServer

DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
NODE, SCHEDULER, IMPOSTOR, OTHER = (Operator(bytes([number]) * 32, DOMAIN) for number in (1, 2, 3, 4))
QUICK = TunnelLimits(hold=0.5, away=3.0, arrival=20.0, visitors=6, visitors_per_customer=4)


class Lending:
    """Lends a port each to NODE and OTHER, whoever else is allowed to ask."""

    def __init__(self, folder: Path, limits: TunnelLimits = QUICK) -> None:
        self.identity, self.app = create_identity(folder), FastAPI()
        self.ports = {NODE.address: free_port(), OTHER.address: free_port()}
        self.tunnels = TunnelServer(SCHEDULER, "127.0.0.1", self.port_of, lambda node: node != IMPOSTOR.address, limits)
        self.tunnels.mount(self.app)
        self.server: TlsServer

    async def port_of(self, node: Address) -> int:
        if node not in self.ports:
            raise TunnelRefused("The node's endpoint on chain is none that is lent here", node, "Register one.")
        return self.ports[node]

    @property
    def port(self) -> int:
        return self.ports[NODE.address]

    @property
    def lender(self) -> Lender:
        return Lender(SCHEDULER.address, f"https://127.0.0.1:{self.server.port}", self.identity.spki_sha256)

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[None]:
        async with self.tunnels:
            self.server = TlsServer(self.app, self.identity, "127.0.0.1", port)
            async with serving(self.server):
                yield

    async def attended(self, node: Operator = NODE) -> None:
        await eventually(lambda: self.lets_in(node))

    def lets_in(self, node: Operator = NODE) -> bool:
        """Whether a node's visitors are let in."""
        lent = self.tunnels._lent.values()
        return any(one.port == self.ports[node.address] and one.listening is not None for one in lent)
