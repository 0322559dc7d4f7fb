"""Task events into the state, and the movements of money that belong to a task into its record."""

from __future__ import annotations

from dataclasses import replace

from troth.protocol.errors import InvalidField
from troth.protocol.events import (
    Credited,
    EquivocationProven,
    EscrowReleased,
    MoneyEvent,
    Slashed,
    TaskEvent,
    TaskOpened,
)
from troth.protocol.fold_reviews import apply_to_review
from troth.protocol.state import State, TaskRecord
from troth.protocol.task_progress import advance, opened, outcome_after


def apply_task(event: TaskEvent, state: State) -> State:
    """The state after an event in a task's life."""
    if isinstance(event, TaskOpened):
        return _opened(event, state)
    record, review = state.tasks.get(event.task_id), state.reviews.get(event.task_id)
    if isinstance(event, EquivocationProven):
        state = replace(state, equivocations=(*state.equivocations, event))
        # Rows can be signed, and their contradiction proven, for an order that was never opened.
        if record is None and review is None:
            return state
    if review is not None:
        return apply_to_review(event, review, state)
    if record is None:
        raise InvalidField("The task was never opened", event.task_id, "A log is missing; follow the chain anew.")
    changed = replace(
        record,
        task=advance(record.task, event),
        outcome=outcome_after(event) or record.outcome,
        events=(*record.events, event),
    )
    return replace(state, tasks=state.tasks.with_item(event.task_id, changed))


def note_movement(event: MoneyEvent, state: State) -> State:
    """``state`` with a movement that belongs to a task noted in the task's record."""
    if not isinstance(event, Credited | Slashed | EscrowReleased):
        return state
    review = state.reviews.get(event.task_id)
    if review is not None:
        noted = replace(review, events=(*review.events, event))
        return replace(state, reviews=state.reviews.with_item(event.task_id, noted))
    record = state.tasks.get(event.task_id)
    if record is None:
        return state
    changed = replace(record, events=(*record.events, event))
    return replace(state, tasks=state.tasks.with_item(event.task_id, changed))


def _opened(event: TaskOpened, state: State) -> State:
    definition = state.classes.get(event.execution_class)
    if definition is None or event.task_id in state.tasks:
        raise InvalidField(
            "A task is opened once, in a class that is registered",
            event.task_id,
            "Follow from the contract's first block.",
        )
    task = opened(event, definition.candidates)
    record = TaskRecord(task, event.request_hash, None, (event,))
    return replace(
        state,
        tasks=state.tasks.with_item(event.task_id, record),
        escrow=state.escrow.with_item(event.client, event.escrow),
    )
