"""Prometheus metrics of a gateway: counts and money, never content."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class GatewayMetrics:
    """One registry per gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "troth_gateway_answers", "Answers to requests by HTTP status", ["path", "status"], registry=self.registry
        )
        self.outcomes = Counter(
            "troth_gateway_outcomes", "Questions by how they ended", ["outcome"], registry=self.registry
        )
        self.failures = Counter(
            "troth_gateway_failures", "Orders that failed, by the hop that did", ["hop"], registry=self.registry
        )
        self.gone = Counter("troth_gateway_readers_gone", "Readers that left before the end", registry=self.registry)
        self.paid = Counter(
            "troth_gateway_paid_units", "Paid for answers, in the asset's smallest unit", registry=self.registry
        )
        self.running = Gauge("troth_gateway_running_orders", "Orders being answered", registry=self.registry)

    def ended(self, outcome: str, paid: int) -> None:
        """A question has come to its end."""
        self.outcomes.labels(outcome).inc()
        self.paid.inc(paid)
