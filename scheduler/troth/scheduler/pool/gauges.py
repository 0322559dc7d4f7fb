"""What Prometheus is shown of the pools: counts and times, by class and layer."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from troth.protocol.types import Hash32
from troth.scheduler.placement.replicas import hosts
from troth.scheduler.pool.balance import layer_loads, variation
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.class_pool import ClassPool


class Gauges:
    """Registered once per scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"troth_scheduler_pool_{name}", text, ["execution_class"], registry=registry)

        self._members = gauge("nodes", "Nodes that report")
        self._hosts = gauge("fewest_hosts", "Hosts of the layer that has fewest")
        self._variation = gauge("load_variation", "Coefficient of variation of the layers' loads")
        self._segments = gauge("segments", "Segments into which orders are split")
        self._moves = gauge("moves", "Orders given to nodes to host something else, since the start")

    def show(self, class_id: Hash32, pool: ClassPool, side: ChainSide) -> None:
        """Take over one pool's figures."""
        shown = "0x" + class_id.hex()
        members = pool.members(side)
        slices = [member.hosted for member in members if member.end <= side.layers]
        seconds = {member.name: member.layer_seconds for member in members}
        self._members.labels(shown).set(len(members))
        self._hosts.labels(shown).set(min(hosts(slices, side.layers), default=0))
        self._variation.labels(shown).set(variation(layer_loads(slices, seconds, side.layers)))
        self._segments.labels(shown).set(len(pool.offered))
        self._moves.labels(shown).set(pool.moves)
