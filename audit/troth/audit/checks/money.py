"""V9: pay, slashes, refunds and bonds of an ended task or review, recomputed to the wei."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from troth.audit.case import TaskCase, compare, mismatch, unavailable
from troth.audit.history import Step
from troth.audit.market.inputs import Unavailable
from troth.audit.payments import movements_due
from troth.audit.report import Finding
from troth.protocol.errors import ProtocolError
from troth.protocol.events import BondReturned, Credited, EscrowReleased, Slashed
from troth.protocol.settlement import BondReturn, Credit, Movement, Release, Slash, SlashReason
from troth.protocol.task import Task, task_hash
from troth.protocol.types import Address, Hash32

NUMBER = "V9"
TITLE = "Pay, slashes, refunds, bonds"

Totals = Mapping[tuple[str, ...], int]
"""Wei by kind of movement and account (a slash also by its reason)."""


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the movements of the transaction that ended the task; None while it lives."""
    ending = case.ending
    if ending is None:
        return None
    moving = case.of(Slashed, Credited, EscrowReleased, BondReturned)
    moved = [step for step in moving if not _by_equivocation(case, step)]
    findings = [
        mismatch(NUMBER, case, step, "Money of the task moved outside the transaction that ended it")
        for step in moved
        if step.event.meta.transaction != ending.event.meta.transaction
    ]
    if isinstance(case.shown, Unavailable):
        return [*findings, unavailable(NUMBER, case, ending, "Pay and slashes", case.shown)]
    try:
        expected = movements_due(case, ending)
    except (ProtocolError, ValueError) as error:
        return [*findings, mismatch(NUMBER, case, ending, f"No payment follows from this decision: {error}")]
    return findings + _difference(case, ending, _due(expected), _paid(moved)) + _evidence(case, ending, moved)


def _by_equivocation(case: TaskCase, step: Step) -> bool:
    """V10 looks at those."""
    transaction = step.event.meta.transaction
    return any(
        isinstance(other.event, Slashed)
        and other.event.reason is SlashReason.EQUIVOCATED
        and other.event.meta.transaction == transaction
        for other in case.steps
    )


def _due(movements: Iterable[Movement]) -> Totals:
    totals: Counter[tuple[str, ...]] = Counter()
    for movement in movements:
        match movement:
            case Slash():
                totals["slash", movement.operator, movement.reason.name] += movement.amount
            case Credit():
                totals["credit", movement.account] += movement.amount
            case Release():
                totals["refund", movement.client] += movement.amount
            case BondReturn():
                totals["bond", movement.disputer] += movement.amount
    return +totals


def _paid(moved: Iterable[Step]) -> Totals:
    totals: Counter[tuple[str, ...]] = Counter()
    for step in moved:
        match step.event:
            case Slashed():
                totals["slash", step.event.operator, step.event.reason.name] += step.event.amount
            case Credited():
                totals["credit", step.event.account] += step.event.amount
            case EscrowReleased():
                totals["refund", step.event.client] += step.event.amount
            case BondReturned():
                totals["bond", step.event.disputer] += step.event.amount
    return +totals


def _difference(case: TaskCase, ending: Step, due: Totals, paid: Totals) -> list[Finding]:
    differences: list[tuple[str, object, object]] = [
        (f"The {' '.join(key)} in wei", due.get(key, 0), paid.get(key, 0)) for key in sorted({*due, *paid})
    ]
    return compare(NUMBER, case, ending, differences)


def _evidence(case: TaskCase, ending: Step, moved: Iterable[Step]) -> list[Finding]:
    """A slash names what it was decided from: the party's own post, or the state that a late scheduler left."""
    task = case.before(ending)
    findings: list[Finding] = []
    for step in moved:
        if not isinstance(step.event, Slashed):
            continue
        allowed = _allowed_evidence(case, task, step.event)
        if step.event.evidence not in allowed:
            message = f"The slash for {step.event.reason.name} names evidence that is not the party's"
            findings.append(mismatch(NUMBER, case, step, message, party=step.event.operator))
    return findings


def _allowed_evidence(case: TaskCase, task: Task, event: Slashed) -> set[Hash32]:
    match event.reason:
        case SlashReason.SCHEDULER_LATE:
            return {task_hash(task)}
        case SlashReason.DISPUTE_LOST:
            return {task.progress.posts[0]}
        case SlashReason.OVERTURNED if case.review is not None:
            return _posts_of(case.disputed.task, event.operator, range(case.review.segment, case.review.segment + 1))
        case _:
            return _posts_of(task, event.operator, range(task.progress.segments))


def _posts_of(task: Task, operator: Address, segments: range) -> set[Hash32]:
    return {
        post
        for segment in segments
        for party, post in zip(
            (task.parties_of(segment)[0], *task.verifiers_of(segment)), task.posts_of(segment), strict=True
        )
        if party == operator
    }
