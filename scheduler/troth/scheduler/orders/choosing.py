"""Who of those that were drawn serves: the fastest by measured times, else by what their channels have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32, Segment, to_address
from troth.scheduler.orders.context import SchedulerContext

MOST_PREFERRED = 64
"""Nodes that a hint names at most; a group has 50."""


@dataclass(frozen=True, slots=True)
class ProspectiveOrder:
    """An order as a chooser of chains sees it before it is admitted."""

    order_id: Hash32
    execution_class: Hash32
    spans: tuple[Segment, ...]
    positions: int


def choose(
    context: SchedulerContext,
    wanted: ProspectiveOrder,
    allowed: Sequence[Sequence[Address]],
    preferred: Sequence[Address] = (),
) -> tuple[Address, ...]:
    """One of the allowed for each segment; who failed lately only where there is no other.

    ``preferred`` are nodes as the entry of an order of one segment would choose them, the best first: it knows whose
    cache holds the prompt. They are a hint, and choose among those that were drawn alone.
    """
    sound = [[node for node in nodes if not context.peers.failed_lately(node)] or list(nodes) for nodes in allowed]
    if len(sound) == 1:
        named = next((node for node in preferred if node in sound[0]), None)
        if named is not None:
            return (named,)
    if context.routes is not None:
        found = context.routes.choose(wanted, sound)
        if found is not None:
            return found
    return tuple(min(nodes, key=context.peers.preference) for nodes in sound)


def read_preferred(text: str) -> tuple[Address, ...]:
    """The nodes of a hint, addresses with commas between; one that cannot be read is none."""
    try:
        return tuple(to_address(name.strip()) for name in text.split(",", MOST_PREFERRED)[:MOST_PREFERRED] if name)
    except ProtocolError:
        return ()
