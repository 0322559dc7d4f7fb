"""The state of a market after many events at once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from troth.protocol.market.events import Event
from troth.protocol.market.fold import apply
from troth.protocol.market.state import State


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """The state after all ``events`` in order."""
    return reduce(lambda before, event: apply(event, before), events, state or State())
