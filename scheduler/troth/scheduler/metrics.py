"""Prometheus metrics of a scheduler: counts and times, never content."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from troth.scheduler.timing import Breakdown

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """One registry per scheduler, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.orders = Counter(
            "troth_scheduler_orders", "Orders by what became of them", ["result"], registry=self.registry
        )
        self.tasks = Counter("troth_scheduler_tasks", "Finished tasks by last step", ["step"], registry=self.registry)
        self.reviews = Counter(
            "troth_scheduler_reviews", "Second verifications by their outcome", ["outcome"], registry=self.registry
        )
        self.running = Gauge("troth_scheduler_running_tasks", "Tasks under way", registry=self.registry)
        self.tokens = Counter("troth_scheduler_tokens", "Tokens streamed", registry=self.registry)
        self.block = Gauge("troth_scheduler_block", "Newest block that was followed", registry=self.registry)
        self._seconds = Histogram(
            "troth_scheduler_seconds",
            "Seconds per task and kind of work",
            ["kind"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def observe(self, step: str, spent: Breakdown) -> None:
        """A task has ended at `step`."""
        self.tasks.labels(step).inc()
        self.tokens.inc(spent.tokens)
        numbers = spent.as_numbers()
        for kind in numbers.keys() - {"tokens", "messages"}:
            self._seconds.labels(kind).observe(numbers[kind])
