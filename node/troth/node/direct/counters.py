"""What an entry counts for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Counters:
    """Requests by what became of them, and the seconds that the entry itself adds to each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.entered = Counter("troth_node_entry_requests", "Orders that entered here.", ["outcome"], registry=registry)
        self.way = Counter(
            "troth_node_entry_ways",
            "Who serves: here, forwarded in the group, or a node that it does not know.",
            ["way"],
            registry=registry,
        )
        self.matched = Counter(
            "troth_node_entry_match_tokens",
            "Prompt tokens believed to be in the chosen node's cache.",
            registry=registry,
        )
        self.tokens = Counter("troth_node_entry_tokens", "Tokens passed on.", registry=registry)
        self.checks = Counter("troth_node_entry_checks", "Checks whose words were passed on.", registry=registry)
        self.contradictions = Counter(
            "troth_node_entry_contradictions", "Answers of which node and scheduler differ.", registry=registry
        )
        self.seconds = Histogram(
            "troth_node_entry_seconds",
            "Time at the entry before an order goes to its scheduler.",
            ["part"],
            buckets=SECONDS,
            registry=registry,
        )
        self.under_way = Gauge("troth_node_entry_under_way", "Orders that are being answered.", registry=registry)

    @contextmanager
    def spent(self, part: str) -> Iterator[None]:
        """Note the time of the block: order (read and checked), decision (who should serve)."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self.seconds.labels(part=part).observe(time.perf_counter() - before)
