"""The movements of money that an end calls for, from the evidence: of a task, and of a review."""

from __future__ import annotations

from troth.audit.case import TaskCase, review_group
from troth.audit.decisions import decide
from troth.audit.history import Step
from troth.audit.market.inputs import Unavailable
from troth.protocol.errors import InvalidField
from troth.protocol.events import ReviewExpired, ReviewSettled, TaskAborted, TaskExpired
from troth.protocol.payout import settle_late, settle_task
from troth.protocol.review import fresh
from troth.protocol.review_payout import FirstRound, close_review, settle_review
from troth.protocol.settlement import Movement, Outcome, Pot, Release, TaskDecision
from troth.protocol.slots import restated
from troth.protocol.state import State
from troth.protocol.task import Phase, Task
from troth.protocol.types import ZERO_HASH


def movements_due(case: TaskCase, ending: Step) -> tuple[Movement, ...]:
    """Recomputed from the openings and the stakes before; raises ProtocolError if none follow from them."""
    event, task = ending.event, case.before(ending)
    terms = task.terms
    pot = Pot(terms.fee, case.definition.unit, terms.client, terms.scheduler, case.evidence.parameters.reserve)
    stakes = _stakes(case, task, ending)
    match event:
        case TaskAborted():
            return (Release(terms.client, terms.fee),)
        case TaskExpired():
            return settle_late(pot, task.progress.segments, _waiting(task), stakes)
        case ReviewExpired():
            return close_review(
                pot,
                _waiting(task),
                stakes,
                verifiers=case.disputed.task.verifiers,
                drawable=_drawable(case, task, ending.before),
            )
        case ReviewSettled():
            return _review_due(case, ending, pot, stakes)
        case _:
            return settle_task(_decided(case, task), pot, stakes)


def _decided(case: TaskCase, task: Task) -> TaskDecision:
    assert case.shown is not None
    assert not isinstance(case.shown, Unavailable)
    return decide(case, task, case.shown)


def _review_due(case: TaskCase, ending: Step, pot: Pot, stakes: dict[str, int]) -> tuple[Movement, ...]:
    assert case.review is not None
    (decision,) = _decided(case, case.before(ending)).segments
    first = ending.before.tasks[case.review.task_id]
    if first.settled is None:
        raise InvalidField("The disputed task was not settled", case.review.task_id, "A log is missing.")
    stands = restated(first, case.review.segment, decision.outcome)
    refund = first.outcome is Outcome.ACCEPTED and stands is not Outcome.ACCEPTED
    round_ = FirstRound(first.task, first.settled, case.review.segment)
    return settle_review(decision, round_, pot, stakes, refund=refund)


def _stakes(case: TaskCase, task: Task, ending: Step) -> dict[str, int]:
    """What can be taken: nothing any more once a party's exit block has passed."""
    state, block = ending.before, ending.event.meta.block
    names = {*task.progress.parties, task.terms.scheduler, task.terms.client}
    if case.review is not None:
        names.update(case.disputed.task.parties_of(case.review.segment))
    accounts = {operator: state.account(operator) for operator in names}
    return {
        operator: account.stake if account.exit_block == 0 or block <= account.exit_block else 0
        for operator, account in accounts.items()
    }


def _waiting(task: Task) -> tuple[str, ...]:
    """Whose posts wait for a sample that never comes, each party once for each of its posts."""
    if task.progress.phase is not Phase.COMMITTED:
        return ()
    members = [
        member
        for segment in range(task.progress.segments)
        for member in (task.parties_of(segment)[0], *task.verifiers_of(segment))
    ]
    return tuple(member for member, post in zip(members, task.progress.posts, strict=True) if post != ZERO_HASH)


def _drawable(case: TaskCase, task: Task, state: State) -> bool:
    """Whether the scheduler could have drawn the reviewers, or did."""
    if task.progress.phase is not Phase.DISPUTED:
        return True
    left = fresh(review_group(state, task), task.progress.parties)
    return sum(member is not None for member in left) >= case.definition.reviewers
