"""Cells that wait for full links: bounded, fair among circuits, and the oldest one's circuit gives way first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from troth.overlay.circuits.link import Link
from troth.overlay.relay.circuit import Leg

_CELLS_PER_FLUSH = 16


class Backlog:
    """The waiting cells of every leg of a relay.

    Args:
        total: bytes of all waiting cells.
        per_leg: bytes of one leg's.
        evict: ends the circuit of a leg that has to give way, and calls `drop` for its legs.
    """

    def __init__(self, total: int, per_leg: int, evict: Callable[[Leg], None]) -> None:
        self._total = total
        self._per_leg = per_leg
        self._evict = evict
        self._by_link: dict[Link, OrderedDict[Leg, None]] = {}
        self._sequence = 0
        self.bytes = 0

    def push(self, leg: Leg, cell: bytes) -> None:
        """Let a cell wait; whoever is over its share, then whoever waits longest, is evicted."""
        if not leg.waiting:
            self._by_link.setdefault(leg.link, OrderedDict())[leg] = None
        self._sequence += 1
        leg.waiting.append((self._sequence, cell))
        leg.waiting_bytes += len(cell)
        self.bytes += len(cell)
        if leg.waiting_bytes > self._per_leg:
            self._evict(leg)
        while self.bytes > self._total:
            self._evict(self._oldest())

    def drop(self, leg: Leg) -> None:
        """Forget what waits on a leg."""
        if not leg.waiting:
            return
        self.bytes -= leg.waiting_bytes
        leg.waiting.clear()
        leg.waiting_bytes = 0
        self._not_waiting(leg)

    def release(self, link: Link) -> None:
        """Send what waits for a link, one cell of each circuit in turn, until it is full again."""
        legs = self._by_link.get(link)
        sent = 0
        while legs and not link.full:
            leg = next(iter(legs))
            legs.move_to_end(leg)
            self._send_one(leg)
            sent += 1
            if sent % _CELLS_PER_FLUSH == 0:
                link.flush()
        link.flush()

    def _send_one(self, leg: Leg) -> None:
        _, cell = leg.waiting.popleft()
        leg.waiting_bytes -= len(cell)
        self.bytes -= len(cell)
        if not leg.waiting:
            self._not_waiting(leg)
        leg.link.send(cell)

    def _not_waiting(self, leg: Leg) -> None:
        legs = self._by_link[leg.link]
        del legs[leg]
        if not legs:
            del self._by_link[leg.link]

    def _oldest(self) -> Leg:
        return min((leg for legs in self._by_link.values() for leg in legs), key=lambda leg: leg.waiting[0][0])
