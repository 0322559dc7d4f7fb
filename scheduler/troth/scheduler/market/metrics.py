"""Prometheus metrics of a scheduler of a market: read when they are asked for, never content."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from troth.protocol.market.types import PotKind
from troth.scheduler.checks.summons import stuck
from troth.scheduler.orders.service import Orders


class MarketMetrics:
    """One registry per scheduler; every gauge is computed at the scrape, so that none shows what was once."""

    def __init__(self, age: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self._gauge("follower_age_seconds", "Since the chain's newest block was followed", age)

    def show(self, orders: Orders) -> None:
        """Compute from these orders, and from what they stand on."""
        desk = orders.desk
        self._gauge("running_orders", "Orders under way", lambda: orders.running)
        self._gauge("block", "Newest block that was followed", lambda: desk.ledger.block)
        self._gauge("exposure", "What running and unacknowledged orders are worth", lambda: desk.client_tabs.exposure)
        me = desk.operator.address
        self._gauge("stake", "Own stake", lambda: desk.ledger.state.pot(PotKind.STAKE, me))
        self._gauge("summons", "Summons that are not answered", lambda: len(stuck(desk)))
        self._gauge("log_overdue", "Closed entries of the log that are not posted", lambda: len(orders.book.overdue()))

    def _gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        Gauge(f"troth_scheduler_{name}", words, registry=self.registry).set_function(lambda: float(value()))
