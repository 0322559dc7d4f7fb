"""Endpoints that a scheduler lends to nodes that nobody can connect to: which node has which port.

The chain says it: a node that has stake and has registered one of these endpoints may have it. Of two that registered
the same one, who attended it first keeps it for as long as the chain says so, over restarts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from troth.protocol.market.state import Party, State
from troth.protocol.market.types import PotKind, Role
from troth.protocol.types import Address
from troth.scheduler.nodes.peers import NodeContact
from troth.scheduler.sections import TunnelPorts
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.transport.errors import TunnelRefused
from troth.transport.identity import Operator
from troth.transport.tunnel_server import TunnelServer

OFFERED = 16
"""Free ports that are told at once, drawn anew each time, so that two newcomers seldom want the same."""


class LentEndpoints:
    """Who has which port; ``server`` passes their visitors on."""

    def __init__(
        self, lent: TunnelPorts, state: Callable[[], State], database: SchedulerDatabase, operator: Operator
    ) -> None:
        self._lent = lent
        self._state = state
        self._database = database
        self.server = TunnelServer(operator, lent.host, self.port_of, lambda node: self._named_by(node) is not None)

    async def port_of(self, node: Address) -> int:
        """The port that a node may have now; raises TunnelRefused."""
        port = self._named_by(node)
        if port is None:
            remedy = "Register one of the endpoints that GET /v1/tunnels lists: troth node reach --tunnel."
            raise TunnelRefused("The node's endpoint on chain is none that is lent here", node, remedy)
        holder = self._holder(port)
        if holder is None or self._named_by(holder) != port:
            await self._database.commit(("INSERT OR REPLACE INTO tunnel_port VALUES (?, ?)", (port, node)))
            # Read again: another node may have been written at the same moment, and one of the two has it.
            holder = self._holder(port)
        if holder != node:
            remedy = "Take another one: troth node reach --tunnel."
            raise TunnelRefused(f"Another node attends {self._lent.endpoint(port)}", holder, remedy)
        return port

    def near(self, contact: NodeContact) -> NodeContact:
        """How this scheduler itself reaches a node: not by its own public name, which its own router may not know."""
        port = self._lent.port_in(contact.endpoint)
        if port is None:
            return contact
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._lent.host, self._lent.host)  # noqa: S104
        return NodeContact(f"https://{host}:{port}", contact.tls_key_hash)

    def routes(self) -> APIRouter:
        """GET /v1/tunnels: some endpoints that are free."""
        router = APIRouter()

        @router.get("/v1/tunnels")
        async def tunnels() -> dict[str, Any]:
            return self.told()

        return router

    def told(self) -> dict[str, Any]:
        """How many endpoints are lent at most, to how many nodes now, and some that are free."""
        parties = self._state().parties.values()
        taken = {self._lent.port_in(party.endpoint) for party in parties if self._has_stake(party)}
        free = [port for port in self._lent.ports if port not in taken]
        some = random.sample(free, min(OFFERED, len(free)))
        return {
            "endpoints": len(self._lent.ports),
            "nodes": self.server.nodes,
            "free": [self._lent.endpoint(port) for port in some],
        }

    def _named_by(self, node: Address) -> int | None:
        """The port that a node with stake registered, if it is one of these."""
        party = self._state().parties.get(node)
        if party is None or not self._has_stake(party):
            return None
        return self._lent.port_in(party.endpoint)

    def _has_stake(self, party: Party) -> bool:
        held = (self._state().pot(kind, party.operator) for kind in (PotKind.STAKE, PotKind.LOCKED))
        return party.role is Role.NODE and any(held)

    def _holder(self, port: int) -> Address | None:
        rows = self._database.read("SELECT operator FROM tunnel_port WHERE port = ?", port)
        return Address(rows[0][0]) if rows else None
