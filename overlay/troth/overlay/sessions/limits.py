"""What a destination lends to strangers, and what it counts: sums only, nothing of a session, a proxy or a client."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge

from troth.overlay.sessions.messages import LARGEST_REQUEST
from troth.overlay.sida import InboxLimits
from troth.overlay.sida.sending import SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Counts, bytes and seconds.

    Args:
        sessions: at once; the one that was silent longest gives way, first of those without a request.
        paths_per_session: known at once; the oldest gives way.
        requests_per_session: being received or answered at once.
        requests: being served at once, of all sessions.
        openings_per_second, opening_burst: new paths, 0.15 ms each.
        opening_age: seconds by which a path's beginning may be old, or ahead of this clock.
        request_bytes: of one request.
        incomplete_bytes: of requests that are not whole, all sessions together; the oldest gives way.
        kept_bytes: of answers that were sent whole and not acknowledged, all sessions together; the oldest give way.
        idle_seconds: after which a silent session is forgotten.
        unattended_seconds: for which an answer is kept that no path leads to, or that nobody reads.
        inbox: of cloves of requests that are not whole yet; `inbox.messages` of those at once, the oldest gives way.
    """

    sessions: int = 4096
    paths_per_session: int = 32
    requests_per_session: int = 48
    requests: int = 256
    openings_per_second: float = 500.0
    opening_burst: float = 1000.0
    opening_age: float = 600.0
    request_bytes: int = LARGEST_REQUEST
    incomplete_bytes: int = 64 * 2**20
    kept_bytes: int = 256 * 2**20
    idle_seconds: float = 1800.0
    unattended_seconds: float = 60.0
    inbox: InboxLimits = field(default_factory=lambda: InboxLimits(segment_bytes=SEGMENT_BYTES, seconds=30.0))


class SessionMetrics:
    """Registered in `registry`, or in one of its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter("troth_overlay_requests", "Requests that came over the overlay", registry=self.registry)
        self.refused = Counter(
            "troth_overlay_refused", "Deliveries that were refused", ["reason"], registry=self.registry
        )
        self.lost = Counter("troth_overlay_lost", "Requests of which parts came and never all", registry=self.registry)
        self.sessions = Gauge("troth_overlay_sessions", "Sessions that are known", registry=self.registry)
