"""How long traces and words are kept: until nobody can ask for them any more (``cases.keeping``).

A node that frees a trace earlier could be summoned to show it, and lose L for showing nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from troth.cases.keeping import is_in_court
from troth.node.orders.session import CHECKS, INFERS
from troth.node.orders.words import Begun
from troth.node.traces import TraceStore
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters


def forgettable(begun: Iterable[Begun], state: State, block: int, parameters: Parameters) -> tuple[Begun, ...]:
    """Of orders that are old enough, those that no case and no summons keeps."""
    return tuple(one for one in begun if not is_in_court(state, one.order, one.segment, block, parameters))


def drop_traces(traces: TraceStore, begun: Begun) -> None:
    """Free what was kept of an order's segment."""
    for attempt in (INFERS, CHECKS):
        trace = traces.find(begun.order, begun.segment, attempt)
        if trace is not None:
            traces.drop(trace)
