"""What a relay keeps of one circuit: two legs and a layer."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from troth.overlay.cells.format import LARGE, SMALL, onion_headers
from troth.overlay.cells.onion import RelayLayer
from troth.overlay.circuits.link import Link

if TYPE_CHECKING:
    import asyncio

    from troth.overlay.relay.proxy import ProxySide


@dataclass(slots=True, eq=False)
class Leg:
    """One side of a circuit: its link, its id there, and the cells that wait because the link is full."""

    circuit: RelayCircuit
    link: Link
    circuit_id: bytes
    headers: dict[int, bytes] = field(init=False)
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    waiting_bytes: int = 0

    def __post_init__(self) -> None:
        self.headers = onion_headers(self.circuit_id)

    def onion(self, stack: bytes, payload: bytes, tag: bytes = b"") -> bytes:
        """The cell on this leg that carries these three."""
        size = SMALL if len(payload) + len(tag) < SMALL else LARGE
        return b"".join((self.headers[size], stack, payload, tag))


@dataclass(slots=True, eq=False)
class RelayCircuit:
    """A circuit through this relay. `layer` is None once it is closed: the keys are gone."""

    layer: RelayLayer | None
    began: float
    last_used: float
    up: Leg = field(init=False)
    down: Leg | None = None
    extending: asyncio.Task[None] | None = None
    created: asyncio.Future[bytes] | None = None
    proven: bool = False
    carried: int = 0
    proxy: ProxySide | None = None

    def own_cell(self, payload: bytes) -> bytes:
        """A cell to the client that this relay speaks in."""
        assert self.layer is not None
        return self.up.onion(*self.layer.originate(payload))
