"""A request's way to the node that serves it: decided here, asked there, once more if that node is full."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from troth.node.direct.counters import Counters
from troth.node.direct.order import EnteredOrder
from troth.node.direct.seams import Group
from troth.node.direct.taking import Taking, request_name
from troth.overlay.errors import OverlayError
from troth.overlay.forwarding.passage import Step, Way
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import Take, Taken

log = logging.getLogger(__name__)

ASKING_SECONDS = 0.8
"""How long a node may take to say whether it serves: two are asked before the scheduler chooses by itself."""
AVOIDED_SECONDS = 3600.0
MOST_AVOIDED = 4096


class Entering:
    """Chooses among the drawn candidates of the tasks that enter here.

    Args:
        group: who holds what, and how loaded they are.
        taking: what this node promises.
        counters: what is counted.
        clock: seconds, of the group's clock.
    """

    def __init__(
        self, group: Group, taking: Taking, counters: Counters, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._group, self._taking, self._counters, self._clock = group, taking, counters, clock
        self._avoided: OrderedDict[tuple[Address, Address], float] = OrderedDict()

    async def choose(
        self, order: EnteredOrder, scheduler: Address, task_id: Hash32, candidates: Sequence[Address]
    ) -> Address | None:
        """Who of the candidates takes the task; None: none that this node knows, so the scheduler chooses."""
        name, now = request_name(task_id, order.salt_hash), self._clock()
        candidates = [node for node in candidates if self._avoided.get((scheduler, node), now) <= now]
        with self._counters.spent("decision"):
            path = self._group.path(order.prompt_tokens)
            step = self._group.passage.enter(name, path, len(order.prompt_tokens), candidates, self._clock())
        while step.way is Way.FORWARD:
            node = Address(step.to)
            if await self._takes(node, Take(task_id, order.salt_hash)):
                self._counters.way.labels(way="forwarded").inc()
                self._counters.matched.inc(step.tokens)
                return node
            step = self._group.passage.busy(name, node, None, self._clock())
        return self._settled(step, order, task_id)

    def contradicted(self, scheduler: Address, node: Address) -> None:
        """They told different answers, and one of them lied: this node is not chosen for that scheduler for a while."""
        self._avoided.pop((scheduler, node), None)
        self._avoided[scheduler, node] = self._clock() + AVOIDED_SECONDS
        if len(self._avoided) > MOST_AVOIDED:
            self._avoided.popitem(last=False)

    def ended(self, order: EnteredOrder, task_id: Hash32, seconds: float | None) -> None:
        """The request is over: answered after so many seconds, or, without, not answered."""
        self._group.passage.ended(request_name(task_id, order.salt_hash), self._clock(), seconds)

    def _settled(self, step: Step, order: EnteredOrder, task_id: Hash32) -> Address | None:
        if step.way is not Way.SERVE:
            self._counters.way.labels(way="scheduler").inc()
            return None
        self._taking.expect(task_id, order.salt_hash)
        self._counters.way.labels(way="here").inc()
        self._counters.matched.inc(step.tokens)
        return self._group.own

    async def _takes(self, node: Address, message: Take) -> bool:
        begun = self._clock()
        try:
            with self._counters.spent("asking"):
                async with asyncio.timeout(ASKING_SECONDS):
                    frame = await self._group.channel(node).request(message)
        except (OverlayError, ProtocolError, TimeoutError) as error:
            log.info("%s cannot be asked to serve: %s", node, error)
            self._counters.busy.labels(reason="unreachable").inc()
            return False
        taken = frame.header
        if not isinstance(taken, Taken):
            self._counters.busy.labels(reason="unreachable").inc()
            return False
        self._group.acknowledged(node, taken.load, self._clock() - begun)
        if taken.way != "serve":
            self._counters.busy.labels(reason=taken.way).inc()
        return taken.way == "serve"
