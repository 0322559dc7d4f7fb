"""Who should serve what enters here, said before anybody is drawn; and what became of it, for the next ones.

The draw is the scheduler's VRF over the order, so an entry does not know whom it allows. It puts all members in order,
and the scheduler admits the first of those that it drew. No question goes back and forth before the first token, and
nobody sees a draw without ordering.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from troth.node.direct.counters import Counters
from troth.node.direct.order import EnteredOrder
from troth.protocol.types import Address, Hash32
from troth.routing.forwarding.forwarder import Forwarder

AVOIDED_SECONDS = 3600.0
MOST_AVOIDED = 4096
MOST_PREFERRED = 50
"""A group has no more members."""


class DealingGroup(Protocol):
    """What dealing needs of a group; see ``group.group.Group``."""

    @property
    def own(self) -> Address:
        """This node."""

    @property
    def forwarder(self) -> Forwarder:
        """Who serves what, and what this node saw of it."""

    def is_member(self, sender: Address) -> bool:
        """Whether another node is in the group, by the chain."""

    def path(self, tokens: Sequence[int]) -> Sequence[tuple[int, int]]:
        """The chunks of a prompt by the group's names."""

    def ranking(self, path: Sequence[tuple[int, int]]) -> tuple[Address, ...]:
        """Members that may serve it, the best first."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A prompt's chunks by the group's names, and all that may serve it, the best first."""

    path: Sequence[tuple[int, int]]
    nodes: tuple[Address, ...]


class EntryDealing:
    """Orders that enter here and who serves them; time is that of the group."""

    def __init__(self, group: DealingGroup, counters: Counters) -> None:
        self._group, self._counters = group, counters
        self._avoided: OrderedDict[tuple[Address, Address], float] = OrderedDict()
        self._serving: dict[Hash32, Address] = {}
        """Who has which order that entered here."""

    def ranked(self, order: EnteredOrder, scheduler: Address) -> Ranked:
        """Who should serve an order."""
        with self._counters.spent("decision"):
            path, now = self._group.path(order.prompt_tokens), time.monotonic()
            kept = [node for node in self._group.ranking(path) if self._avoided.get((scheduler, node), now) <= now]
            return Ranked(path, tuple(kept[:MOST_PREFERRED]))

    def dealt(self, order: EnteredOrder, ranked: Ranked, node: Address) -> None:
        """The scheduler admitted this node."""
        if order.order_id not in self._serving:
            self._count(order, ranked, node)
        here, known = node == self._group.own, self._group.is_member(node)
        self._counters.way.labels(way="here" if here else "forwarded" if known else "stranger").inc()

    def ended(self, order: EnteredOrder, seconds: float | None) -> None:
        """An order is over: answered after so many seconds, or, without, not answered."""
        node = self._serving.pop(order.order_id, None)
        if node is not None:
            self._group.forwarder.ended(node, time.monotonic(), seconds)

    def _count(self, order: EnteredOrder, ranked: Ranked, node: Address) -> None:
        held = self._group.forwarder.admitted(ranked.path, len(order.prompt_tokens), node, time.monotonic())
        if held is not None:
            self._serving[order.order_id] = node
            self._counters.matched.inc(held)

    def contradicted(self, scheduler: Address, node: Address) -> None:
        """They told different answers, and one of them lied: this node is not wanted of that scheduler for a while."""
        self._avoided.pop((scheduler, node), None)
        self._avoided[scheduler, node] = time.monotonic() + AVOIDED_SECONDS
        if len(self._avoided) > MOST_AVOIDED:
            self._avoided.popitem(last=False)
