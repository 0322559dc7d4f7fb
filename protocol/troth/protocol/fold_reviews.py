"""Second verifications into the state: the review's own record, its task's, and the bond."""

from __future__ import annotations

from dataclasses import replace

from troth.protocol.contract_types import Role
from troth.protocol.errors import InvalidField
from troth.protocol.events import (
    BondReturned,
    ReviewAssigned,
    ReviewEvent,
    ReviewExpired,
    ReviewSettled,
    TaskDisputed,
    TaskEvent,
)
from troth.protocol.review import review_task
from troth.protocol.settlement import BOND, Outcome
from troth.protocol.state import ReviewRecord, State
from troth.protocol.task import Phase, Progress
from troth.protocol.task_progress import advance
from troth.protocol.types import ZERO_HASH, Address, Hash32


def apply_review(event: ReviewEvent, state: State) -> State:
    """The state after an event in a review's life; raises InvalidField if it cannot follow."""
    if isinstance(event, TaskDisputed):
        return _disputed(event, state)
    record = state.reviews.get(event.review_id)
    if record is None:
        raise InvalidField("The review never began", event.review_id, "A log is missing; follow the chain anew.")
    changed = replace(record, events=(*record.events, event))
    if isinstance(event, ReviewAssigned):
        progress = _assigned(record.review.progress, event)
        changed = replace(changed, review=replace(record.review, progress=progress))
    elif isinstance(event, ReviewSettled):
        changed = replace(changed, outcome=event.outcome)
        state = _restated(event, state)
    elif isinstance(event, ReviewExpired):
        changed = replace(changed, outcome=Outcome.EXPIRED)
    else:
        state = _returned(event, record, state)
    return replace(state, reviews=state.reviews.with_item(event.review_id, changed))


def apply_to_review(event: TaskEvent, record: ReviewRecord, state: State) -> State:
    """The state after a task's event that a review had."""
    changed = replace(record, review=advance(record.review, event), events=(*record.events, event))
    return replace(state, reviews=state.reviews.with_item(event.task_id, changed))


def bond_is_escrow(state: State, execution_class: Hash32, bond: int) -> bool:
    """Whether a bond came from an escrow: who is no party pays more than the 8 units of a party."""
    return bond > BOND * state.classes[execution_class].unit


def _disputed(event: TaskDisputed, state: State) -> State:
    record = state.tasks.get(event.task_id)
    if record is None or record.live or event.review_id in state.reviews:
        raise InvalidField(
            "A segment is disputed once, after its settlement", event.task_id, "A log is missing; follow anew."
        )
    review = review_task(record.task, event.segment, event.disputer, event.bond, event.meta.block)
    begun = ReviewRecord(event.task_id, event.segment, review, None, (event,))
    noted = replace(record, events=(*record.events, event))
    state = replace(
        state,
        tasks=state.tasks.with_item(event.task_id, noted),
        reviews=state.reviews.with_item(event.review_id, begun),
    )
    if event.bond == 0:
        return state
    if bond_is_escrow(state, record.task.terms.execution_class, event.bond):
        return replace(state, escrow=state.escrow.with_item(event.disputer, event.balance))
    return _with_stake(state, event.disputer, event.balance)


def _assigned(progress: Progress, event: ReviewAssigned) -> Progress:
    return replace(
        progress,
        phase=Phase.ASSIGNED,
        phase_block=event.meta.block,
        parties=event.parties,
        posts=(progress.posts[0], *(ZERO_HASH,) * (len(event.parties) - 1)),
    )


def _restated(event: ReviewSettled, state: State) -> State:
    task = state.tasks[event.task_id]
    changed = replace(task, outcome=event.task_outcome, events=(*task.events, event))
    return replace(state, tasks=state.tasks.with_item(event.task_id, changed))


def _returned(event: BondReturned, record: ReviewRecord, state: State) -> State:
    if bond_is_escrow(state, record.review.terms.execution_class, event.amount):
        return replace(state, escrow=state.escrow.with_item(event.disputer, event.balance))
    if state.account(event.disputer).role is Role.NONE:
        account = replace(state.account(event.disputer), credit=event.balance)
        return replace(state, accounts=state.accounts.with_item(event.disputer, account))
    return _with_stake(state, event.disputer, event.balance)


def _with_stake(state: State, operator: Address, stake: int) -> State:
    account = replace(state.account(operator), stake=stake)
    return replace(state, accounts=state.accounts.with_item(operator, account))
