"""How circuits begin at a relay: CREATE from the client's side, EXTEND to the next relay.

Public-key work happens here and nowhere else, and is paid for from three budgets: of the link, of the whole relay,
and of set-ups that lead nowhere (half-open circuits).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from troth.overlay.cells.format import Cell, Command, EndReason, control_cell, destroy_cell, new_circuit_id
from troth.overlay.cells.messages import Parcel, ParcelKind
from troth.overlay.cells.onion import RelayLayer
from troth.overlay.circuits.handshake import REPLY_BYTES, REQUEST_BYTES, RelayIdentity
from troth.overlay.circuits.link import Link, LinkPool
from troth.overlay.relay.circuit import Leg, RelayCircuit, Relaying
from troth.overlay.relay.limits import SeenShares, TokenBucket
from troth.transport.errors import HandshakeRefused, MalformedCell, OverlayError

_NAME = slice(1, 33)


class Beginning(Relaying, Protocol):
    """A relay at which circuits begin."""

    draining: bool
    pool: LinkPool

    def routes(self, link: Link) -> dict[bytes, RelayCircuit]:
        """The circuits on a link, by their id there."""

    def send_at_once(self, link: Link, cell: bytes) -> None:
        """Past what waits for the link."""

    def batch_ended(self) -> None:
        """Write what the last cells caused."""


class Setup:
    """The beginning of circuits at a relay."""

    def __init__(self, switch: Beginning, identity: RelayIdentity) -> None:
        self._switch = switch
        self._identity = identity
        self._all_links = TokenBucket(switch.limits.setups_per_second, switch.limits.setup_burst, 0.0)
        self._by_link: dict[Link, TokenBucket] = {}
        self._seen = SeenShares()
        self._half_open: OrderedDict[RelayCircuit, None] = OrderedDict()
        self._extending: set[RelayCircuit] = set()

    def create(self, link: Link, cell: Cell, existing: RelayCircuit | None) -> None:
        """A CREATE came. Raises MalformedCell if its sender may not begin circuits, or uses an id twice."""
        if link.dialed or existing is not None:
            raise MalformedCell("A circuit is begun where none may begin", cell.circuit_id.hex())
        refusal = self._refusal(link)
        if refusal is None:
            refusal = self._answer(link, cell)
        self._switch.metrics.setups.labels("created" if refusal is None else refusal.name.lower()).inc()
        if refusal is not None:
            self._switch.send_at_once(link, destroy_cell(cell.circuit_id, refusal))

    def _refusal(self, link: Link) -> EndReason | None:
        switch, limits = self._switch, self._switch.limits
        now = asyncio.get_running_loop().time()
        link.last_used = now
        bucket = self._by_link.get(link)
        if bucket is None:
            bucket = TokenBucket(limits.link_setups_per_second, limits.link_setup_burst, now)
            self._by_link[link] = bucket
        if switch.draining:
            return EndReason.DRAINING
        if len(switch.circuits) >= limits.circuits or not bucket.take(now) or not self._all_links.take(now):
            return EndReason.BUSY
        return None

    def _answer(self, link: Link, cell: Cell) -> EndReason | None:
        try:
            if not self._seen.first_time(self._identity.share_in(cell.body)):
                return EndReason.PROTOCOL
            reply, keys = self._identity.answer(cell.body)
        except HandshakeRefused:
            return EndReason.HANDSHAKE
        now = asyncio.get_running_loop().time()
        circuit = RelayCircuit(RelayLayer(keys), began=now, last_used=now)
        circuit.up = Leg(circuit, link, cell.circuit_id)
        self._switch.circuits[circuit] = None
        self._switch.routes(link)[cell.circuit_id] = circuit
        self._half_open[circuit] = None
        if len(self._half_open) > self._switch.limits.half_open:
            self._switch.close(next(iter(self._half_open)), EndReason.BUSY)
        self._switch.send_at_once(link, control_cell(Command.CREATED, cell.circuit_id, reply))
        return None

    def proven(self, circuit: RelayCircuit) -> None:
        """The client has shown that it holds the keys."""
        circuit.proven = True
        self._half_open.pop(circuit, None)

    def gave_up(self, circuit: RelayCircuit) -> None:
        """The circuit is closed."""
        self._half_open.pop(circuit, None)

    def forget(self, link: Link) -> None:
        """The link is gone."""
        self._by_link.pop(link, None)

    def extend(self, circuit: RelayCircuit, request: bytes) -> None:
        """EXTEND came: ask the next relay. Raises MalformedCell if the circuit has a next relay already."""
        switch = self._switch
        if circuit.down is not None or circuit.extending is not None or circuit.proxy is not None:
            raise MalformedCell("A circuit is extended twice, or after messages")
        if len(request) != REQUEST_BYTES:
            raise MalformedCell("A set-up request has another length", len(request))
        if request[_NAME] == self._identity.name:
            raise MalformedCell("A circuit leads back to this relay")
        if request[_NAME] not in switch.directory.relays:
            switch.close(circuit, EndReason.UNKNOWN_RELAY)
        elif len(self._extending) >= switch.limits.extending:
            switch.close(circuit, EndReason.BUSY)
        else:
            self._extending.add(circuit)
            circuit.extending = asyncio.create_task(self._extend(circuit, request))

    async def _extend(self, circuit: RelayCircuit, request: bytes) -> None:
        switch = self._switch
        try:
            async with asyncio.timeout(switch.limits.extend_seconds):
                link = await switch.pool.to(switch.directory.relays[request[_NAME]].place)
                reply = await self._ask(circuit, link, request)
        except (OverlayError, TimeoutError):
            switch.close(circuit, EndReason.UNREACHABLE)
        else:
            circuit.created = None
            switch.tell(circuit, Parcel(ParcelKind.EXTENDED, reply))
        finally:
            self._extending.discard(circuit)
            circuit.extending = None
            switch.batch_ended()

    async def _ask(self, circuit: RelayCircuit, link: Link, request: bytes) -> bytes:
        routes = self._switch.routes(link)
        circuit_id = new_circuit_id()
        while circuit_id in routes:
            circuit_id = new_circuit_id()
        circuit.created = asyncio.get_running_loop().create_future()
        circuit.down = Leg(circuit, link, circuit_id)
        routes[circuit_id] = circuit
        link.send(control_cell(Command.CREATE, circuit_id, request))
        link.flush()
        return await circuit.created

    def created(self, link: Link, circuit: RelayCircuit, cell: Cell) -> None:
        """CREATED came from the next relay; what nobody waits for ends the circuit."""
        if not link.dialed or circuit.created is None or circuit.created.done():
            self._switch.close(circuit, EndReason.PROTOCOL)
            return
        circuit.created.set_result(cell.body[:REPLY_BYTES])
