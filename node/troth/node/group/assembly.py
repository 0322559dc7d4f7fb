"""The group of a running node, put together from its bench."""

from __future__ import annotations

from collections.abc import Callable

from troth.node.engine.interface import WholeEngine
from troth.node.group.cache import Cache
from troth.node.group.group import Group
from troth.node.group.loads import Loads
from troth.node.group.membership import Membership
from troth.node.group.sharing import UNRATED, Reputation
from troth.node.orders.bench import Bench
from troth.protocol.market.state import State
from troth.protocol.types import Segment

BATCH = 64
"""Requests that vLLM computes at once as this node starts it (`engine.vllm.settings`)."""
TURNS = 4
"""Sessions that an engine without batches computes in turn before it counts as busy."""


def group_of(
    bench: Bench,
    *,
    state: Callable[[], State],
    sessions: Callable[[], int],
    capacity: int | None = None,
    reputation: Reputation = lambda _: UNRATED,
) -> Group | None:
    """The group of the node with this bench, to be run; None for a node that has none.

    Args:
        state: the folded chain.
        sessions: requests that are computed here now, for engines that do not count them.
        capacity: requests that are computed at once; None as the engine is started here.
    """
    engine = bench.engine
    tells = isinstance(engine, WholeEngine)
    if engine.slice != Segment(0, engine.layers):
        return None
    loads = Loads(engine, sessions, bench.meter, capacity or (BATCH if tells else TURNS))
    membership = Membership(bench.operator.address, bench.execution_class, state)
    source = engine if isinstance(engine, WholeEngine) else None
    return Group(
        bench.operator, membership, loads, lambda naming, note: Cache(source, naming, note), reputation=reputation
    )
