"""What a relay counts for Prometheus. Sums over circuits only: nothing here tells one user from another."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from troth.overlay.cells.format import EndReason


class RelayMetrics:
    """One registry per relay, so that several in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cells = Counter("troth_relay_cells", "Cells received.", ["direction"], registry=self.registry)
        self.bytes = Counter("troth_relay_bytes", "Bytes of cells received.", ["direction"], registry=self.registry)
        self.strays = Counter("troth_relay_stray_cells", "Cells of unknown circuits.", registry=self.registry)
        self.setups = Counter("troth_relay_setups", "Circuit set-ups asked for.", ["outcome"], registry=self.registry)
        self.closed = Counter("troth_relay_circuits_closed", "Circuits ended.", ["reason"], registry=self.registry)
        self.messages = Counter("troth_relay_messages", "Messages at the proxy.", ["outcome"], registry=self.registry)
        self.turned_away = Counter("troth_relay_links_refused", "Connections turned away.", registry=self.registry)
        self.circuits = Gauge("troth_relay_circuits", "Circuits open.", registry=self.registry)
        self.links = Gauge("troth_relay_links", "Links open.", ["side"], registry=self.registry)
        self.backlog = Gauge("troth_relay_backlog_bytes", "Bytes waiting for full links.", registry=self.registry)
        # Per cell a label lookup would cost as much as the layer: added up here, handed over once a second.
        self._forward = [0, 0]
        self._backward = [0, 0]

    def cell(self, size: int, *, forward: bool) -> None:
        """Count one cell."""
        counts = self._forward if forward else self._backward
        counts[0] += 1
        counts[1] += size

    def hand_over(self) -> None:
        """Make what was counted visible."""
        for direction, counts in (("forward", self._forward), ("backward", self._backward)):
            if counts[0]:
                self.cells.labels(direction).inc(counts[0])
                self.bytes.labels(direction).inc(counts[1])
                counts[0] = counts[1] = 0

    def ended(self, reason: EndReason) -> None:
        """Count one closed circuit."""
        self.closed.labels(reason.name.lower()).inc()
