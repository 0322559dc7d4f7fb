"""What a relay keeps of one circuit: two legs and a layer; and what its parts need of the relay that has it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from troth.overlay.cells.format import LARGE, SMALL, EndReason, onion_headers
from troth.overlay.cells.messages import Parcel, Reassembly
from troth.overlay.cells.onion import RelayLayer
from troth.overlay.circuits.descriptors import Directory
from troth.overlay.circuits.link import Link
from troth.overlay.relay.limits import RelayLimits
from troth.overlay.relay.metrics import RelayMetrics


class MessagesEnd(Protocol):
    """A circuit's last hop, where messages are put together (`proxy.ProxySide`)."""

    reassembly: Reassembly

    @property
    def busy(self) -> bool:
        """Whether an answer is still expected or under way."""

    def heard(self, parcel: Parcel) -> None:
        """DATA or CREDIT; raises CellRefused: end the circuit."""

    def close(self) -> None:
        """The circuit is over."""


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
    proxy: MessagesEnd | None = None

    def own_cell(self, payload: bytes) -> bytes:
        """A cell to the client that this relay speaks in."""
        assert self.layer is not None
        return self.up.onion(*self.layer.originate(payload))


class Relaying(Protocol):
    """What the beginning and the last hop of circuits need of their relay (`switch.Switch`)."""

    directory: Directory
    limits: RelayLimits
    metrics: RelayMetrics
    circuits: dict[RelayCircuit, None]

    def tell(self, circuit: RelayCircuit, parcel: Parcel, size: int = SMALL) -> None:
        """Say something to the client."""

    def close(self, circuit: RelayCircuit, reason: EndReason, *, told_by: Link | None = None) -> None:
        """End a circuit on both sides."""
