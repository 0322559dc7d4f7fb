"""One class: its live map, its router, and the standing decision about who hosts what.

A node whose report is not taken is told why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import LINKS_LIMIT, Report
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.graph import PipelineHost
from troth.routing.pipelines.live_map import EXPIRY_SECONDS, LiveMap, MachineReport
from troth.routing.pipelines.router import Route, Router
from troth.routing.placement.hardware import ModelShape, Terms, capacity_of
from troth.routing.placement.plan import Slice
from troth.routing.placement.regions import regions_of
from troth.routing.placement.replicas import hosts, weakest_window
from troth.scheduler.errors import SchedulerError
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.deciding import PlacementDecision, ReportingNode, decide
from troth.scheduler.pool.measurements import NodeMeasurements
from troth.scheduler.pool.offering import (
    MOST_SEGMENTS,
    Ends,
    joined_segments,
    offered_ends,
    planned_ends,
    segments_of,
    shared_out,
)
from troth.scheduler.pool.orders import HostingOrder, may_move, wanted_hosting
from troth.scheduler.pool.pace import PlacementPace

log = logging.getLogger(__name__)
LINK_EXPIRY_SECONDS = 300.0
PROBES = 4
"""Ways that one report's answer asks to be measured: with 64 nodes all are known within half a minute."""
ORDER_SECONDS = 120.0
"""How long a node may take to load and to register its slice before its place is thought about again."""
UNMOVED_SECONDS = 900.0
"""For how long the slice of a node that did not carry an order out in time is taken as it is: one that says it is
movable and has much memory, and never moves, would else have the others placed around what it does not host."""
CLOSEST_REPORTS = 0.2
"""Seconds between two reports of one node; who reports faster is refused."""
UNTRIED_ORDERS = 4
"""Of the longest kind, that a node holds at once of which no answer was measured lately: it may claim any speed, and
would have all orders that it is drawn for, as long as none of them ends."""


class ReportRefused(SchedulerError):
    """Nothing was noted of the report."""

    code = "report_refused"
    status = 400


class ClassNotServed(ReportRefused):
    """This scheduler serves no such class."""

    code = "class_not_served"
    status = 404


class ClassPool:
    """Holds what is known of one class's nodes. Pure but for its clock: callers bring reports and the chain's side."""

    def __init__(
        self,
        shape: ModelShape,
        cached_tokens: int,
        *,
        placing: bool,
        pace: PlacementPace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`placing`: whether nodes are told what to host; else only pipelines are chosen here."""
        self._shape = shape
        self._cached_tokens = cached_tokens
        self._placing = placing
        self._clock = clock
        self.live = LiveMap(EXPIRY_SECONDS, link_expiry_seconds=LINK_EXPIRY_SECONDS)
        self.measurements = NodeMeasurements()
        self.router = Router(self.live.graph(shape.layers, 0.0))
        self._routed: dict[str, PipelineHost] = {}
        self.decision = PlacementDecision((), "")
        self.offered: Ends = ()
        self.target: Ends = ()
        self.moves = 0
        self.considered = False
        self._reports: dict[str, tuple[float, Report]] = {}
        self._moving: dict[str, float] = {}
        self._unmoved: dict[str, tuple[float, Segment]] = {}
        self._asked: dict[str, int] = {}
        self._shares: dict[str, tuple[Segment, ...]] = {}
        self._pace = pace or PlacementPace()
        self._number = time.time_ns() // 1_000_000

    def take(self, sender: Address, report: Report) -> None:
        """Note a report; raises ReportRefused for a replayed, overtaken or too frequent one."""
        now = self._clock()
        before = self._reports.get(sender)
        if before is not None and not report.leaving and now - before[0] < CLOSEST_REPORTS:
            raise ReportRefused("Reports come too fast", sender, f"Send one in {CLOSEST_REPORTS:g} s at most.")
        way = self.measurements.round_trip(sender, now) / 2
        host = PipelineHost(
            name=sender,
            first=report.first,
            end=report.end,
            layer_seconds=self.measurements.believed(sender, report.decode_nanoseconds / 1e9, now),
            cache_tokens=self._room_of(sender, report, now),
            # Its own count would be a lever: a node that says it is crowded would seem fast for its load.
            running=self.router.running_on(sender),
            entry_seconds=way,
            exit_seconds=way,
        )
        if not self.live.report(MachineReport(report.sequence, host), now):
            raise ReportRefused(
                "The report is older than one that came before, or the table is full",
                report.sequence,
                "Send a new one.",
            )
        self._reports[sender] = (now, report)
        for link in report.links:
            if link.node in self._reports:
                self.live.link(sender, link.node, link.microseconds / 1e6, now)
        if report.leaving:
            self.forget(sender)

    def _room_of(self, name: str, report: Report, now: float) -> int:
        """Tokens that a node may hold for orders."""
        tried = self.measurements.seen(name, now) is not None or not self._cached_tokens
        return report.cache_tokens if tried else min(report.cache_tokens, UNTRIED_ORDERS * self._cached_tokens)

    def forget(self, name: str) -> None:
        """A node left: its layers are free, and it is chosen no more."""
        self.live.forget(name)
        self._reports.pop(name, None)
        self._moving.pop(name, None)
        self._asked.pop(name, None)

    def members(self, chain: ChainSide) -> list[ReportingNode]:
        """The nodes that report and are registered, with what is believed of them."""
        now = self._clock()
        hosts_now = self.live.hosts(now)
        for name in [name for name in self._reports if name not in hosts_now]:
            self.forget(name)
        return [
            ReportingNode(
                name=name,
                memory_bytes=self._usable_bytes(report),
                layer_seconds=self.measurements.believed(name, report.decode_nanoseconds / 1e9, now),
                first=chain.slices[Address(name)].first,
                end=chain.slices[Address(name)].end,
                movable=self._may_be_moved(Address(name), report, chain),
            )
            for name, (_, report) in self._reports.items()
            if Address(name) in chain.slices
        ]

    def consider(self, chain: ChainSide) -> None:
        """Look at the members again, decide, and see which ends can be offered."""
        now, self.considered = self._clock(), True
        self._note_arrivals(chain, now)
        members = self.members(chain)
        may, calm = self._pace.may_decide(frozenset(member.name for member in members), now, busy=bool(self._moving))
        if may:
            self._decide(members, chain, now, calm=calm)
        self.offered = self._offered(chain, {member.name for member in members})

    def _decide(self, members: Sequence[ReportingNode], chain: ChainSide, now: float, *, calm: bool) -> None:
        terms = Terms(verifiers=chain.parties - 1)
        names = [member.name for member in members]
        decision = decide(members, self._shape, terms, regions_of(names, self.live.links(now)), calm=calm)
        if decision.reason:
            log.info("placing anew: %s", decision.reason)
            self._pace.note_move(now)
            self._number = max(self._number + 1, time.time_ns() // 1_000_000)
        self.decision = decision
        ends = planned_ends(decision.slices, self._shape.layers, chain.parties) or ()
        # Other groups cost every node a transaction: not without need.
        works = bool(self.offered) and self._full(chain, set(names)).issuperset(segments_of(self.offered))
        keeps = works and not decision.reason and len(ends) >= len(self.offered)
        self.target = self.offered if keeps else ends
        self._shares = self._shared_out(chain)

    def _shared_out(self, chain: ChainSide) -> dict[str, tuple[Segment, ...]]:
        """Who joins which groups, where the chain does not let a node join all that its slice holds."""
        if chain.most_groups >= MOST_SEGMENTS:
            return {}
        return shared_out(
            self.decision.slices,
            self.target,
            chain.parties,
            chain.most_groups,
            lambda name: chain.joined(Address(name)),
        )

    def order_for(self, sender: Address, chain: ChainSide) -> tuple[int, HostingOrder] | None:
        """What a movable node should host instead of what it has, with the order's number; None to stay."""
        held = self._reports.get(sender)
        planned = self.decision.slice_of(sender)
        if held is None or planned is None or not self._may_be_moved(sender, held[1], chain):
            return None
        hosting = self._wanted(sender, planned, chain)
        if hosting is None:
            return None
        if sender not in self._moving:
            if not may_move(
                sender, hosting, chain, self.offered, live=self._reports.keys(), moving=self._moving.keys()
            ):
                return None
            self._moving[sender] = self._clock() + ORDER_SECONDS
            self.moves += 1
        return self._number, hosting

    def window_for(self, memory_bytes: int, chain: ChainSide) -> HostingOrder | None:
        """Where a newcomer with so much memory would be most useful: by the weakest layer; None if it can hold none."""
        held = [Slice(name, slice_.first, slice_.end) for name, slice_ in chain.slices.items() if name in self._reports]
        capacity = capacity_of(memory_bytes, self._shape, 0)
        window = weakest_window(hosts(held, self._shape.layers), capacity)
        if window is None:
            return None
        inside = joined_segments(*window, (self.target, self.offered))
        if len(inside) > chain.most_groups:
            inside = tuple(sorted(inside, key=lambda one: (len(chain.groups.get(one, ())), one.first)))
        return HostingOrder(*window, inside[: chain.most_groups])

    def probes_for(self, sender: Address) -> tuple[str, ...]:
        """Other nodes to which this one has not measured the way lately: others each time, so that some to which there
        is no way do not stand before the rest."""
        missing = sorted(name for name in self.live.unmeasured(sender, self._clock()) if name in self._reports)
        if not missing:
            return ()
        asked = self._asked.get(sender, 0)
        self._asked[sender] = asked + PROBES
        turn = (sum(name < sender for name in missing) + asked) % len(missing)
        return tuple((missing[turn:] + missing[:turn])[: min(PROBES, LINKS_LIMIT)])

    def choose(self, request: str, tokens: int, draws: Sequence[SegmentDraw]) -> Route:
        """The fastest pipeline with room among the candidates drawn; it holds its room until `router.release`."""
        now = self._clock()
        hosts = self.live.hosts(now)
        if hosts != self._routed:
            # Orders are many, reports few; where the scheduler carries the states, the graph is of hosts alone.
            self.router.refresh(self.live.graph(self._shape.layers, now))
            self._routed = hosts
        return self.router.choose(request, tokens, draws)

    def note_answer(self, name: str, layers: int, seconds: float) -> None:
        """What one position through `layers` layers took, the way included."""
        self.measurements.note_answer(name, layers, seconds, self._clock())

    def note_round_trip(self, name: str, seconds: float) -> None:
        """The way there and back."""
        self.measurements.note_round_trip(name, seconds, self._clock())

    def report_of(self, name: str) -> Report | None:
        """The last report of a node that is here."""
        held = self._reports.get(name)
        return None if held is None else held[1]

    def reporting(self) -> tuple[str, ...]:
        """Who reports."""
        return tuple(self.live.hosts(self._clock()))

    def _usable_bytes(self, report: Report) -> int:
        """Memory for weights of as many layers as also have room for one longest sequence in the cache."""
        sequence = self._cached_tokens * self._shape.key_value_bytes
        layers = report.cache_bytes // sequence if sequence else self._shape.layers
        ends = self._shape.embedding_bytes + self._shape.head_bytes
        return min(report.memory_bytes, layers * self._shape.layer_bytes + ends) if layers else 0

    def _may_be_moved(self, name: Address, report: Report, chain: ChainSide) -> bool:
        _, stayed = self._unmoved.get(name, (0.0, None))
        return self._placing and report.movable and name not in chain.kept and chain.slices.get(name) != stayed

    def _note_arrivals(self, chain: ChainSide, now: float) -> None:
        """Who has moved is on its way no more; nor is who had the time to and did not."""
        under_way = {name: until for name, until in self._moving.items() if not self._arrived(name, chain)}
        self._moving = {name: until for name, until in under_way.items() if until > now}
        self._unmoved = {name: stayed for name, stayed in self._unmoved.items() if stayed[0] > now}
        for name in under_way.keys() - self._moving.keys():
            stays = chain.slices.get(Address(name))
            if stays is not None:
                log.info("%s has not moved from %s as it was told", name, stays)
                self._unmoved[name] = (now + UNMOVED_SECONDS, stays)

    def _arrived(self, name: str, chain: ChainSide) -> bool:
        planned = self.decision.slice_of(name)
        return planned is None or self._wanted(Address(name), planned, chain) is None

    def _wanted(self, name: Address, planned: Slice, chain: ChainSide) -> HostingOrder | None:
        share = self._shares.get(name, ())
        return wanted_hosting(name, planned, chain, self.target, self.offered, share=share)

    def _full(self, chain: ChainSide, live: set[str]) -> set[Segment]:
        return {segment for segment, ready in self._ready(chain, live).items() if ready >= chain.parties}

    @staticmethod
    def _ready(chain: ChainSide, live: set[str]) -> dict[Segment, int]:
        """Members of each group that are alive; all of them as long as nobody reports, as after a restart."""
        counted = {
            segment: sum(member in live or not live for member in members) for segment, members in chain.groups.items()
        }
        if not chain.largely:
            return counted
        covering = {
            segment: sum(held.first <= segment.first and segment.end <= held.end for held in chain.slices.values())
            for segment in counted
        }
        return {
            segment: ready for segment, ready in counted.items() if 2 * len(chain.groups[segment]) >= covering[segment]
        }

    def _offered(self, chain: ChainSide, live: set[str]) -> Ends:
        preferred = [ends for ends in (self.target, self.offered) if ends]
        found = offered_ends(self._ready(chain, live), self._shape.layers, chain.parties, preferred)
        if found is None:
            # A full group with dead members in it still serves if the draw is lucky: better than nothing.
            found = offered_ends(self._ready(chain, set()), self._shape.layers, chain.parties, preferred)
        return found or self.offered or self.target
