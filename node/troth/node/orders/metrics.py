"""What a node counts for Prometheus: work, money, calls. Names end in their unit."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from troth.node.earning.keeper import EarningKeeper
from troth.node.engine.interface import EngineLoad
from troth.node.orders.context import NodeContext
from troth.node.orders.duties import NodeDuties
from troth.protocol.market.types import PotKind
from troth.protocol.types import Segment
from troth.transport.router_port import RouterPort
from troth.transport.tunnel_client import Tunnel

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class NodeMetrics:
    """One registry per node, so that tests and several nodes in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "troth_node_requests", "Messages by type and outcome.", ["message", "outcome"], registry=self.registry
        )
        self.seconds = Histogram(
            "troth_node_request_seconds", "Time to answer.", ["message"], buckets=SECONDS, registry=self.registry
        )
        self.positions = Counter("troth_node_positions", "Positions computed.", ["role"], registry=self.registry)
        self.sessions = Gauge("troth_node_sessions", "Sessions held.", registry=self.registry)
        self.cache_bytes = Gauge("troth_node_cache_bytes", "Memory of attention caches.", registry=self.registry)
        self.engine_requests = Gauge(
            "troth_node_engine_requests", "Requests in a whole-model engine.", ["state"], registry=self.registry
        )
        self.cache_used = Gauge("troth_node_cache_used_ratio", "Share of cache blocks in use.", registry=self.registry)
        self.prompt_tokens = Gauge(
            "troth_node_engine_prompt_tokens", "Prompt tokens since it started.", ["source"], registry=self.registry
        )
        self.block = Gauge("troth_node_block", "Last block that was followed.", registry=self.registry)
        self.follower_age = Gauge(
            "troth_node_follower_age_seconds", "Since the chain's newest block was followed.", registry=self.registry
        )
        self.stake = Gauge("troth_node_stake_wei", "Own stake.", registry=self.registry)
        self.first = Gauge("troth_node_slice_first", "First layer hosted.", registry=self.registry)
        self.end = Gauge("troth_node_slice_end", "Layer after the last one hosted.", registry=self.registry)

    def follow_slice(self, hosted: Callable[[], Segment]) -> None:
        """Ask what is hosted whenever the numbers are read."""
        self.first.set_function(lambda: hosted().first)
        self.end.set_function(lambda: hosted().end)

    def follow_sessions(self, sessions: Callable[[], int], cache_bytes: Callable[[], int]) -> None:
        """Ask what is held whenever the numbers are read."""
        self.sessions.set_function(sessions)
        self.cache_bytes.set_function(cache_bytes)

    def follow_router(self, port: RouterPort) -> None:
        """Whether the router says that it leads the registered port here."""
        self._gauge(
            "router_port_open", "1 while the router keeps a port open for this node.", lambda: float(not port.trouble)
        )

    def follow_tunnel(self, tunnel: Tunnel) -> None:
        """Whether the scheduler's end of the tunnel answers, and how many came through it."""
        self._gauge("tunnel_open", "1 while the tunnel to this node is open.", lambda: float(not tunnel.trouble))
        self._gauge("tunnel_visitors", "Connections that come through the tunnel now.", lambda: float(tunnel.visits))

    def _gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        Gauge(f"troth_node_{name}", words, registry=self.registry).set_function(value)

    def follow_load(self, load: Callable[[], EngineLoad]) -> None:
        """Ask a whole-model engine whenever the numbers are read."""
        self.engine_requests.labels(state="running").set_function(lambda: load().running)
        self.engine_requests.labels(state="waiting").set_function(lambda: load().waiting)
        self.cache_used.set_function(lambda: load().cache_used)
        self.prompt_tokens.labels(source="cache").set_function(lambda: load().cached_tokens)
        self.prompt_tokens.labels(source="computed").set_function(lambda: load().prompt_tokens - load().cached_tokens)

    def observe(self, message: str, outcome: str, seconds: float) -> None:
        """Count one message."""
        self.requests.labels(message=message, outcome=outcome).inc()
        self.seconds.labels(message=message).observe(seconds)


class NodeMarketMetrics(Collector):
    """Gauges of the followed chain and counters of what was sent; nothing here names an order."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._parts: tuple[NodeContext, EarningKeeper, NodeDuties] | None = None
        registry.register(self)

    def follow(self, context: NodeContext, keeper: EarningKeeper, duties: NodeDuties) -> None:
        """Count these from now on."""
        self._parts = (context, keeper, duties)

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """As the registry asks."""
        if self._parts is None:
            return []
        context, keeper, duties = self._parts
        state = context.ground.state
        own = [tab for tab, record in state.tabs.items() if record.tab.payee == context.me]
        calls = CounterMetricFamily("troth_node_own_calls", "Transactions sent about money.", labels=["call"])
        # From 0 on: a series that begins at 1 has no increase, and an alert would not see the first claim.
        for name, count in ({"redeem": 0, "claim": 0} | keeper.sent).items():
            calls.add_metric([name], count)
        return [
            GaugeMetricFamily("troth_node_tabs", "Tabs with schedulers.", len(own)),
            GaugeMetricFamily(
                "troth_node_tabs_units", "Money on them.", sum(state.pot(PotKind.TAB, tab) for tab in own)
            ),
            GaugeMetricFamily("troth_node_credit_units", "Credit.", state.pot(PotKind.CREDIT, context.me)),
            CounterMetricFamily("troth_node_summons_answered", "Summons answered.", duties.responded),
            calls,
        ]
