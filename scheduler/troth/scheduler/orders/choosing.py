"""Who of those that were drawn serves: the fastest by measured times, else by what their channels have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol.types import Address, Hash32, Segment
from troth.scheduler.orders.desk import Desk


@dataclass(frozen=True, slots=True)
class Wanted:
    """An order as a chooser of chains sees it before it is admitted."""

    order_id: Hash32
    execution_class: Hash32
    spans: tuple[Segment, ...]
    positions: int


def choose(desk: Desk, wanted: Wanted, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...]:
    """One of the allowed for each segment; who failed lately only where there is no other."""
    sound = [[node for node in nodes if not desk.peers.failed_lately(node)] or list(nodes) for nodes in allowed]
    if desk.routes is not None:
        found = desk.routes.choose(wanted, sound)
        if found is not None:
            return found
    return tuple(min(nodes, key=desk.peers.preference) for nodes in sound)
