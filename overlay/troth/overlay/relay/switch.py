"""The relay itself, without sockets: cells come in from links and go out to links, circuits begin and end.

A link that this relay dialed leads away from the client, an accepted one towards it. Whatever does not fit ends its
circuit, or the link if no circuit can be named; every cell that is not forwarded is counted under a reason.
"""

from __future__ import annotations

import asyncio
import logging

from troth.overlay.cells import messages
from troth.overlay.cells.format import HEADER, SMALL, Cell, Command, EndReason, destroy_cell, reason_of
from troth.overlay.cells.messages import Parcel, ParcelKind
from troth.overlay.cells.onion import NO_TAG
from troth.overlay.circuits.descriptors import Directory
from troth.overlay.circuits.handshake import RelayIdentity
from troth.overlay.circuits.link import Link, LinkPool
from troth.overlay.relay.backlog import Backlog
from troth.overlay.relay.circuit import Leg, RelayCircuit
from troth.overlay.relay.deliveries import Deliveries
from troth.overlay.relay.limits import RelayLimits
from troth.overlay.relay.metrics import RelayMetrics
from troth.overlay.relay.proxy import ProxySide
from troth.overlay.relay.setup import Setup
from troth.transport.errors import CellRefused, CellTampered, MalformedCell, QuotaExceeded

log = logging.getLogger(__name__)


class Switch:
    """Forwards cells between links.

    Args:
        identity: this relay's handshake key.
        directory: whom it may connect to.
        proxy: whether it delivers messages to destinations, as the last hop of a circuit.
    """

    def __init__(
        self,
        identity: RelayIdentity,
        directory: Directory,
        limits: RelayLimits,
        metrics: RelayMetrics,
        *,
        proxy: bool = True,
    ) -> None:
        self.directory = directory
        self.limits = limits
        self.metrics = metrics
        self.delivers = proxy
        self.pool = LinkPool(self)
        self.deliveries = Deliveries(limits, self.batch_ended)
        self.circuits: dict[RelayCircuit, None] = {}
        self.draining = False
        self.message_bytes = 0
        self._setup = Setup(self, identity)
        self._backlog = Backlog(limits.backlog_bytes, limits.circuit_backlog_bytes, self._evict)
        self._routes: dict[Link, dict[bytes, RelayCircuit]] = {}
        self._dirty: dict[Link, None] = {}

    @property
    def backlog_bytes(self) -> int:
        """Bytes of cells that wait for full links."""
        return self._backlog.bytes

    def routes(self, link: Link) -> dict[bytes, RelayCircuit]:
        """The circuits on a link, by their id there."""
        known = self._routes.get(link)
        if known is None:
            known = self._routes[link] = {}
        return known

    # -- what links tell -------------------------------------------------------------------------------------------

    def cell_came(self, link: Link, cell: Cell) -> None:
        """Handle one cell; raises CellRefused if the link itself is not to be believed any more."""
        command, circuit_id, body = cell
        circuit = self.routes(link).get(circuit_id)
        self.metrics.cell(len(body) + HEADER, forward=not link.dialed)
        if command is Command.ONION and circuit is not None:
            self._onion(link, circuit, body)
        elif command is Command.CREATE:
            self._setup.create(link, cell, circuit)
        elif command is Command.PADDING:
            return
        elif circuit is None:
            # A cell that crossed a DESTROY on its way: nothing to do, and nothing to learn.
            self.metrics.strays.inc()
        elif command is Command.DESTROY:
            self._destroyed(link, circuit, reason_of(cell.body[0]))
        else:
            self._setup.created(link, circuit, cell)

    def batch_ended(self) -> None:
        """Write what the last cells caused."""
        dirty, self._dirty = self._dirty, {}
        for link in dirty:
            link.flush()

    def link_ready(self, link: Link) -> None:
        """Send what waited for a link."""
        self._backlog.release(link)

    def link_lost(self, link: Link) -> None:
        """End every circuit on a link."""
        for circuit in list(self._routes.pop(link, {}).values()):
            self.close(circuit, EndReason.UNREACHABLE if link.dialed else EndReason.DESTROYED, told_by=link)
        self._dirty.pop(link, None)
        self._setup.forget(link)
        self.pool.forget(link)
        self.batch_ended()

    # -- cells of a circuit ----------------------------------------------------------------------------------------

    def _onion(self, link: Link, circuit: RelayCircuit, body: bytes) -> None:
        circuit.last_used = link.last_used = asyncio.get_running_loop().time()
        circuit.carried += len(body)
        try:
            if circuit.carried > self.limits.circuit_bytes:
                raise QuotaExceeded("A circuit has carried its share", circuit.carried)
            if link.dialed:
                self._backward(circuit, body)
            else:
                self._forward(circuit, body)
        except CellTampered:
            self.close(circuit, EndReason.TAMPERED)
        except QuotaExceeded:
            self.close(circuit, EndReason.QUOTA)
        except CellRefused:
            self.close(circuit, EndReason.PROTOCOL)

    def _forward(self, circuit: RelayCircuit, body: bytes) -> None:
        assert circuit.layer is not None
        stack, payload, tag = circuit.layer.open(body)
        if not circuit.proven:
            self._setup.proven(circuit)
        if tag == NO_TAG:
            self._heard(circuit, messages.decode(payload))
        elif circuit.down is None or circuit.created is not None:
            raise MalformedCell("A cell for a hop that is not there")
        else:
            self.send(circuit.down, circuit.down.onion(stack, payload, tag))

    def _backward(self, circuit: RelayCircuit, body: bytes) -> None:
        if circuit.created is not None or circuit.layer is None:
            raise MalformedCell("The next relay speaks before it was created")
        self.send(circuit.up, circuit.up.onion(*circuit.layer.wrap(body)))

    def _heard(self, circuit: RelayCircuit, parcel: Parcel) -> None:
        """A parcel for this relay."""
        if parcel.kind is ParcelKind.PING:
            self.tell(circuit, Parcel(ParcelKind.PONG, parcel.content))
        elif parcel.kind is ParcelKind.EXTEND:
            self._setup.extend(circuit, parcel.content)
        elif parcel.kind is ParcelKind.DATA or parcel.kind is ParcelKind.CREDIT:
            if circuit.down is not None:
                raise MalformedCell("A message for a relay that is not the last one")
            if circuit.proxy is None:
                circuit.proxy = ProxySide(self, circuit)
            circuit.proxy.heard(parcel)
        elif parcel.kind is not ParcelKind.PADDING:
            raise MalformedCell("A client does not say this", parcel.kind.name)

    def tell(self, circuit: RelayCircuit, parcel: Parcel, size: int = SMALL) -> None:
        """Say something to the client."""
        self.send(circuit.up, circuit.own_cell(messages.encode(parcel, size)))

    def send(self, leg: Leg, cell: bytes) -> None:
        """Send a cell on, or let it wait if its link is full."""
        link = leg.link
        if link.full or leg.waiting:
            self._backlog.push(leg, cell)
        else:
            link.send(cell)
            self._dirty[link] = None

    # -- the end of a circuit --------------------------------------------------------------------------------------

    def close(self, circuit: RelayCircuit, reason: EndReason, *, told_by: Link | None = None) -> None:
        """End a circuit on both sides, except where the end came from, and forget its keys.

        The client gets BROKEN under this relay's layer, so that it knows who says so; the bare DESTROY after it
        carries no reason of a relay further on.
        """
        if circuit not in self.circuits:
            return
        del self.circuits[circuit]
        up, down = circuit.up, circuit.down
        waited = bool(up.waiting)
        for leg in (up, down):
            if leg is not None:
                self._backlog.drop(leg)
                self._routes.get(leg.link, {}).pop(leg.circuit_id, None)
        if told_by is not up.link:
            # After dropped cells the client's count is off: nothing that we say would fit.
            if circuit.layer is not None and not waited:
                self.send_at_once(
                    up.link, circuit.own_cell(messages.encode(Parcel(ParcelKind.BROKEN, bytes((reason,)))))
                )
            self.send_at_once(up.link, destroy_cell(up.circuit_id, reason))
        if down is not None and told_by is not down.link:
            self.send_at_once(down.link, destroy_cell(down.circuit_id, EndReason.FINISHED))
        self._release(circuit)
        self.metrics.ended(reason)

    def _release(self, circuit: RelayCircuit) -> None:
        circuit.layer = None
        self._setup.gave_up(circuit)
        if circuit.extending is not None:
            circuit.extending.cancel()
        if circuit.proxy is not None:
            circuit.proxy.close()

    def _destroyed(self, link: Link, circuit: RelayCircuit, reason: EndReason) -> None:
        if not link.dialed:
            self.close(circuit, EndReason.FINISHED, told_by=link)
        elif circuit.created is not None and reason in (EndReason.BUSY, EndReason.DRAINING):
            self.close(circuit, reason, told_by=link)
        else:
            self.close(circuit, EndReason.DESTROYED, told_by=link)

    def _evict(self, leg: Leg) -> None:
        log.info("a circuit was closed: %d bytes waited for full links", self._backlog.bytes)
        self.close(leg.circuit, EndReason.EVICTED)

    def send_at_once(self, link: Link, cell: bytes) -> None:
        """Past the backlog: at most two cells for each circuit that ends."""
        if link.open:
            link.send(cell)
            self._dirty[link] = None
