"""The pools of all classes in the running scheduler: reports come in, orders and ends go out, ways are measured.

Prometheus is shown counts and times of the pools, by class and layer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from troth.chain.duty import Duty
from troth.protocol.sizes import sizes_of
from troth.protocol.types import Address, Hash32, Segment
from troth.protocol.wire import SCHEDULER_REQUESTS
from troth.protocol.wire_reports import HostingPart, Report, Reported, SpanPart
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.placement.hardware import ModelShape
from troth.routing.placement.replicas import hosts
from troth.scheduler.nodes.peers import Peers
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.class_pool import ClassNotServed, ClassPool, ReportRefused
from troth.scheduler.pool.deciding import layer_loads, variation
from troth.scheduler.pool.offering import Ends
from troth.scheduler.pool.orders import HostingOrder
from troth.scheduler.pool.pace import PlacementPace
from troth.scheduler.pool.sides import Sides
from troth.scheduler.served import ServedClass
from troth.transport.channel_server import ChannelLimits, ChannelServer
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)
CONSIDER_SECONDS = 1.0
WAYS_SECONDS = 5.0
"""Between two measurements of the way to every node that reports."""
WAY_TIMEOUT = 2.0
REPORT_LIMITS = ChannelLimits(
    frame=64 * 1024,
    in_flight=256,
    in_flight_per_connection=2,
    in_flight_bytes=8 * 2**20,
    connections=4096,
    connections_per_sender=2,
    in_flight_per_sender=2,
)
"""A report has a few kilobytes, and a node needs one connection."""


def shape_of(config: str, layers: int, dtype: int) -> ModelShape:
    """The shape of a model with this canonical configuration.

    Where that names no sizes, a machine's memory does not bound its slice, and the node's own check has to.
    """
    named = json.loads(config)
    sizes = sizes_of(named if isinstance(named, dict) else {}, dtype)
    return ModelShape(layers, sizes.layer, sizes.key_value, sizes.embedding, sizes.head, sizes.tied)


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


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What is to be served: room for ``positions`` is held for it under its ``name``."""

    name: Hash32
    execution_class: Hash32
    spans: Sequence[Segment]
    positions: int


class Coordinator:
    """Owns one ClassPool for each served class that the chain knows.

    Args:
        chain: as it is now.
    """

    def __init__(
        self,
        served: Sequence[ServedClass],
        chain: Sides,
        peers: Peers,
        gauges: Gauges,
        pace: Callable[[], PlacementPace] = PlacementPace,
    ) -> None:
        self._served = {entry.class_id: entry for entry in served}
        self._chain = chain
        self._peers = peers
        self._gauges = gauges
        self._pace = pace
        self._pools: dict[Hash32, ClassPool] = {}
        self._sides: dict[Hash32, ChainSide] = {}

    def server(self, operator: Any) -> ChannelServer:
        """Where registered nodes report; mount it on the scheduler's application."""
        return ChannelServer(
            operator,
            self.handle,
            self._is_node,
            limits=REPORT_LIMITS,
            requests=SCHEDULER_REQUESTS,
            who="registered nodes",
        )

    async def handle(self, sender: Address, report: Report, payload: memoryview) -> tuple[Reported, bytes]:
        """Take a report; raises ReportRefused."""
        if len(payload):
            raise ReportRefused("A report has no payload", len(payload), "Send the header alone.")
        pool, side = self.pool(Hash32(report.execution_class)), self._side(Hash32(report.execution_class))
        if pool is None or side is None:
            shown = "0x" + report.execution_class.hex()
            raise ClassNotServed("This scheduler does not serve the class", shown, "GET /v1/info lists what it serves.")
        if sender not in side.slices:
            raise ReportRefused("You are not registered for this class", sender, "Register, or correct the class.")
        pool.take(sender, report)
        order = pool.order_for(sender, side)
        return Reported(None if order is None else _hosting(*order), pool.probes_for(sender)), b""

    def pool(self, class_id: Hash32) -> ClassPool | None:
        """The pool of a class; None if it is not served, or not registered on chain."""
        pool = self._pools.get(class_id)
        if pool is None:
            entry, side = self._served.get(class_id), self._side(class_id)
            if entry is None or side is None:
                return None
            shape = entry.shape or shape_of(entry.texts.config, side.layers, side.dtype)
            pool = ClassPool(shape, entry.context, placing=entry.placing, pace=self._pace())
            pool.target = () if entry.placing else entry.ends
            self._pools[class_id] = pool
        return pool

    def ends(self, entry: ServedClass) -> Ends:
        """Into which segments a class is split now: fixed by the scheduler's operator, or as the nodes are placed."""
        if not entry.placing:
            return entry.ends
        pool, side = self.pool(entry.class_id), self._side(entry.class_id)
        if pool is None or side is None:
            return entry.ends
        if not pool.considered:
            # Only before the first look: strangers ask this, and a large pool takes a while.
            pool.consider(side)
        return pool.offered or entry.ends or (side.layers,)

    def window_for(self, class_id: Hash32, memory_bytes: int) -> HostingOrder | None:
        """Where a newcomer would be of most use; nothing of it is kept. None if nowhere, or the class is not placed."""
        pool, side = self.pool(class_id), self._side(class_id)
        entry = self._served.get(class_id)
        if pool is None or side is None or entry is None or not entry.placing:
            return None
        return pool.window_for(memory_bytes, side)

    def choose_for(self, wanted: RouteRequest, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """The fastest pipeline among `allowed` candidates of each segment, with room for what is wanted."""
        pool = self.pool(wanted.execution_class)
        if pool is None:
            return None
        self.release_for(wanted.execution_class, wanted.name)
        draws = [
            SegmentDraw(segment.first, segment.end, tuple(nodes))
            for segment, nodes in zip(wanted.spans, allowed, strict=True)
        ]
        pipeline = pool.choose(wanted.name.hex(), wanted.positions, draws)
        if not pipeline.segments:
            log.debug("no pipeline is chosen by measured times: %s", pipeline.reason)
            return None
        return tuple(Address(part.name) for part in pipeline.segments)

    def note_answer_for(self, class_id: Hash32, node: Address, layers: int, seconds: float) -> None:
        """One position through `layers` layers took `seconds` at a node, the way included."""
        pool = self.pool(class_id)
        if pool is not None:
            pool.note_answer(node, layers, seconds)

    def release_for(self, class_id: Hash32, name: Hash32) -> None:
        """Give back what is held under a name."""
        pool = self._pools.get(class_id)
        if pool is not None:
            pool.router.release(name.hex())

    def pools(self) -> dict[Hash32, tuple[ClassPool, ChainSide]]:
        """Every class's pool with its chain's side."""
        found = {class_id: (self.pool(class_id), self._side(class_id)) for class_id in self._served}
        return {class_id: (pool, side) for class_id, (pool, side) in found.items() if pool and side}

    def duties(self) -> tuple[Duty, ...]:
        """What is done for as long as this runs."""
        placing = Duty("placing nodes", self._consider, every=CONSIDER_SECONDS)
        return placing, Duty("measuring ways", self._measure_ways, every=WAYS_SECONDS)

    async def _consider(self) -> None:
        """Think about every class again."""
        for class_id, (pool, side) in self.pools().items():
            try:
                pool.consider(side)
                self._gauges.show(class_id, pool, side)
            except Exception:
                # One class's trouble keeps no other from being placed, and tasks are served all the same.
                log.exception("class 0x%s could not be placed", class_id.hex())

    async def _measure_ways(self) -> None:
        """Measure the way to every node that reports."""
        await asyncio.gather(
            *[self._measure(pool, Address(name)) for pool, _ in self.pools().values() for name in pool.reporting()],
            return_exceptions=True,
        )

    async def _measure(self, pool: ClassPool, node: Address) -> None:
        try:
            pool.note_round_trip(node, await self._peers.channel(node).round_trip(WAY_TIMEOUT))
        except OverlayError as error:
            log.debug("the way to %s could not be measured: %s", node, error)

    def _side(self, class_id: Hash32) -> ChainSide | None:
        known = self._sides.get(class_id)
        if known is None or known.block != self._chain.block:
            side = self._chain.side(class_id)
            if side is None:
                return None
            known = self._sides[class_id] = side
        return known

    def _is_node(self, sender: Address) -> bool:
        return self._chain.is_node(sender)


def _hosting(number: int, hosting: HostingOrder) -> HostingPart:
    segments = tuple(SpanPart(segment.first, segment.end) for segment in hosting.segments)
    return HostingPart(number, hosting.first, hosting.end, segments)
