"""What a destination counts: sums only, nothing of a session, a proxy or a client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """Registered in `registry`, or in one of its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter("troth_overlay_requests", "Requests that came over the overlay", registry=self.registry)
        self.refused = Counter(
            "troth_overlay_refused", "Deliveries that were refused", ["reason"], registry=self.registry
        )
        self.sessions = Gauge("troth_overlay_sessions", "Sessions that are known", registry=self.registry)
