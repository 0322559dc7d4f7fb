"""The fold: ``apply(event, state)`` is the next state. Pure, total over ``Event``, and the auditor's core."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from troth.protocol.events import Event, MoneyEvent, RegistryEvent, ReviewEvent
from troth.protocol.fold_money import apply_money
from troth.protocol.fold_registry import apply_registry
from troth.protocol.fold_reviews import apply_review
from troth.protocol.fold_tasks import apply_task, note_movement
from troth.protocol.state import State


def apply(event: Event, state: State) -> State:
    """The state after ``event``; raises InvalidField for an event that cannot follow (a log is missing or repeated)."""
    if isinstance(event, RegistryEvent):
        return apply_registry(event, state)
    if isinstance(event, MoneyEvent):
        return note_movement(event, apply_money(event, state))
    if isinstance(event, ReviewEvent):
        return apply_review(event, state)
    return apply_task(event, state)


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """The state after all ``events`` in order."""
    return reduce(lambda before, event: apply(event, before), events, state or State())
