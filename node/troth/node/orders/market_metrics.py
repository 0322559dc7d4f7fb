"""What a node counts for Prometheus beside its work: money, calls, summons. Read when they are asked for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from troth.node.earning.keeper import EarningKeeper
from troth.node.orders.bench import Bench
from troth.node.orders.duties import Duties
from troth.protocol.market.types import PotKind


class MarketMetrics(Collector):
    """Gauges of the followed chain and counters of what was sent; nothing here names an order."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._parts: tuple[Bench, EarningKeeper, Duties] | None = None
        registry.register(self)

    def follow(self, bench: Bench, keeper: EarningKeeper, duties: Duties) -> None:
        """Count these from now on."""
        self._parts = (bench, keeper, duties)

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """As the registry asks."""
        if self._parts is None:
            return []
        bench, keeper, duties = self._parts
        state = bench.ground.state
        own = [tab for tab, record in state.tabs.items() if record.tab.payee == bench.me]
        calls = CounterMetricFamily("troth_node_own_calls", "Transactions sent about money.", labels=["call"])
        for name, count in keeper.sent.items():
            calls.add_metric([name], count)
        return [
            GaugeMetricFamily("troth_node_tabs", "Tabs with schedulers.", len(own)),
            GaugeMetricFamily(
                "troth_node_tabs_units", "Money on them.", sum(state.pot(PotKind.TAB, tab) for tab in own)
            ),
            GaugeMetricFamily("troth_node_credit_units", "Credit.", state.pot(PotKind.CREDIT, bench.me)),
            CounterMetricFamily("troth_node_summons_answered", "Summons answered.", duties.responded),
            calls,
        ]
