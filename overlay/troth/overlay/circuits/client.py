"""Where circuits are built: a client's links to its guards, and the circuits on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from troth.overlay.cells.format import MAX_HOPS, Cell, new_circuit_id
from troth.overlay.circuits import blame
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.circuits.link import Link, LinkPool
from troth.overlay.circuits.rotation import Rotation
from troth.transport.errors import CircuitFailed, CircuitSilent, MalformedCell, OverlayError

BUILD_SECONDS = 15.0


class CircuitClient:
    """Builds circuits. Several circuits through one guard share a link, as that guard sees one client anyway."""

    def __init__(self, rotation: Rotation | None = None) -> None:
        self._rotation = rotation or Rotation()
        self._pool = LinkPool(self)
        self._circuits: dict[Link, dict[bytes, Circuit]] = {}

    async def build(self, path: Sequence[RelayDescriptor], seconds: float = BUILD_SECONDS) -> Circuit:
        """A circuit over these relays; raises CircuitFailed naming the class of the hop that failed."""
        if not 1 <= len(path) <= MAX_HOPS or len({relay.name for relay in path}) != len(path):
            raise MalformedCell(f"A path has 1 to {MAX_HOPS} different relays", len(path), "Choose another path.")
        circuit = await self._begin(path, seconds)
        try:
            async with asyncio.timeout(seconds):
                await circuit.establish()
        except TimeoutError:
            position = circuit.hops + 1
            hop = blame.hop_class(position, len(path))
            raise circuit.fail(CircuitSilent(hop, position, f"it was not set up within {seconds:g} s")) from None
        except BaseException:
            # Whoever waited gave up: the hops that have keys by now must not keep them.
            circuit.close()
            raise
        return circuit

    async def _begin(self, path: Sequence[RelayDescriptor], seconds: float) -> Circuit:
        try:
            async with asyncio.timeout(seconds):
                link = await self._pool.to(path[0].place)
        except (OverlayError, TimeoutError) as error:
            reason = getattr(error, "what", f"no connection within {seconds:g} s")
            raise CircuitFailed(blame.hop_class(1, len(path)), 1, str(reason)) from error
        known = self._circuits.setdefault(link, {})
        circuit_id = new_circuit_id()
        while circuit_id in known:
            circuit_id = new_circuit_id()
        circuit = known[circuit_id] = Circuit(link, circuit_id, path, self._rotation, self._forget)
        return circuit

    async def close(self) -> None:
        """Tear every circuit down and close every link."""
        for circuits in list(self._circuits.values()):
            for circuit in list(circuits.values()):
                circuit.close()
        await self._pool.close()

    def _forget(self, circuit: Circuit) -> None:
        self._circuits.get(circuit.link, {}).pop(circuit.circuit_id, None)

    # -- what links tell -------------------------------------------------------------------------------------------

    def cell_came(self, link: Link, cell: Cell) -> None:
        """A cell from a guard; those of circuits that ended are ignored."""
        circuit = self._circuits.get(link, {}).get(cell.circuit_id)
        if circuit is None:
            return
        circuit.cell_came(cell)

    def batch_ended(self) -> None:
        """Write the credits that were due."""
        for link in self._pool.links():
            link.flush()

    def link_ready(self, link: Link) -> None:
        """A guard has caught up."""
        for circuit in self._circuits.get(link, {}).values():
            circuit.link_ready()

    def link_lost(self, link: Link) -> None:
        """Every circuit on this link failed at its guard."""
        self._pool.forget(link)
        for circuit in self._circuits.pop(link, {}).values():
            circuit.fail(blame.guard_ended(None, len(circuit.path)), tell=False)
