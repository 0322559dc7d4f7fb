"""The layers that a node on tabs holds: those that it hosts by the chain, and former ones while they may be asked for.

Who was a member at an order's reference block is drawn for it whatever it hosts by then; so former layers stay for the
age of a reference block, and as long as sessions are in them.
"""

from __future__ import annotations

import logging

from troth.node.orders.bench import Bench
from troth.node.orders.service import OrderService
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Segment

log = logging.getLogger(__name__)


def hosted_slice(bench: Bench) -> Segment | None:
    """What the chain says that this node hosts; None if it is not registered in its class."""
    party = bench.ground.state.parties.get(bench.me)
    return party.hosted if party is not None and party.execution_class == bench.execution_class else None


class Hosting:
    """``step`` looks once; ``supervision`` repeats it."""

    def __init__(self, bench: Bench, service: OrderService) -> None:
        self._bench = bench
        self._service = service
        self._former: dict[Segment, int] = {}
        self._held: tuple[Segment, frozenset[Segment]] | None = None

    @property
    def lacking(self) -> str:
        """Why the slice that the chain says is not served yet; empty when it is."""
        hosted = hosted_slice(self._bench)
        if hosted is None or self._bench.engine.holds(hosted):
            return ""
        return f"layers {hosted.first}:{hosted.end} are loading"

    async def step(self) -> None:
        """Hold what is wanted now; raises ModelError where it cannot be loaded, and serves the rest meanwhile."""
        bench, hosted = self._bench, hosted_slice(self._bench)
        if hosted is None:
            return
        parameters, block = parameters_of(bench.ground.state), bench.ground.block
        if bench.engine.slice != hosted:
            self._former[bench.engine.slice] = block + parameters.reference_age + parameters.lag
        self._former = {segment: until for segment, until in self._former.items() if until >= block}
        keep = self._service.segments | self._former.keys()
        outside = frozenset(one for one in keep if not hosted.first <= one.first < one.end <= hosted.end)
        if (hosted, outside) != self._held:
            await bench.engine.rehost(hosted, sorted(outside, key=lambda one: (one.first, one.end)))
            self._held = (hosted, outside)
            log.info("hosting layers %d:%d", hosted.first, hosted.end)
