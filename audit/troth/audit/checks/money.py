"""V9: pay, slashes and refunds of an ended task, recomputed to the wei."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from troth.audit.case import TaskCase, compare, mismatch, unavailable
from troth.audit.decisions import decide
from troth.audit.history import Step
from troth.audit.inputs import Unavailable
from troth.audit.report import Finding
from troth.protocol.errors import ProtocolError
from troth.protocol.events import Credited, EscrowReleased, Slashed, TaskAborted, TaskExpired
from troth.protocol.payout import settle_late, settle_task
from troth.protocol.settlement import Credit, Movement, Pot, Release, Slash, SlashReason
from troth.protocol.state import State
from troth.protocol.task import Phase, Task, task_hash
from troth.protocol.types import ZERO_HASH, Hash32

NUMBER = "V9"
TITLE = "Pay, slashes, refunds"

Totals = Mapping[tuple[str, ...], int]
"""Wei by kind of movement and account (a slash also by its reason)."""


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the movements of the transaction that ended the task; None while it lives."""
    ending = case.ending
    if ending is None:
        return None
    moved = [step for step in case.of(Slashed, Credited, EscrowReleased) if not _by_equivocation(case, step)]
    findings = [
        mismatch(NUMBER, case, step, "Money of the task moved outside the transaction that ended it")
        for step in moved
        if step.event.meta.transaction != ending.event.meta.transaction
    ]
    if isinstance(case.shown, Unavailable):
        return [*findings, unavailable(NUMBER, case, ending, "Pay and slashes", case.shown)]
    try:
        expected = _expected(case, ending)
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


def _expected(case: TaskCase, ending: Step) -> tuple[Movement, ...]:
    event, task = ending.event, case.before(ending)
    terms = task.terms
    pot = Pot(terms.fee, case.definition.unit, terms.client, terms.scheduler, case.evidence.parameters.reserve)
    stakes = _stakes(task, ending.before, event.meta.block)
    match event:
        case TaskAborted():
            return (Release(terms.client, terms.fee),)
        case TaskExpired():
            workers = _workers(task) if task.progress.phase is Phase.COMMITTED else ()
            return settle_late(pot, task.progress.segments, workers, stakes)
        case _:
            assert case.shown is not None
            assert not isinstance(case.shown, Unavailable)
            return settle_task(decide(case, task, case.shown), pot, stakes)


def _stakes(task: Task, state: State, block: int) -> dict[str, int]:
    """What can be taken: nothing any more once a party's exit block has passed."""
    accounts = {operator: state.account(operator) for operator in (*task.progress.parties, task.terms.scheduler)}
    return {
        operator: account.stake if account.exit_block == 0 or block <= account.exit_block else 0
        for operator, account in accounts.items()
    }


def _workers(task: Task) -> tuple[str, ...]:
    """Each party once for each of its posts."""
    width = task.posts_per_segment
    members = [
        member
        for segment in range(task.progress.segments)
        for member in (task.parties_of(segment)[0], *task.verifiers_of(segment))
    ]
    assert len(members) == width * task.progress.segments
    return tuple(member for member, post in zip(members, task.progress.posts, strict=True) if post != ZERO_HASH)


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
        allowed = _allowed_evidence(task, step.event)
        if step.event.evidence not in allowed:
            message = f"The slash for {step.event.reason.name} names evidence that is not the party's"
            findings.append(mismatch(NUMBER, case, step, message, party=step.event.operator))
    return findings


def _allowed_evidence(task: Task, event: Slashed) -> set[Hash32]:
    if event.reason is SlashReason.SCHEDULER_LATE:
        return {task_hash(task)}
    return {
        post
        for segment in range(task.progress.segments)
        for operator, post in zip(
            (task.parties_of(segment)[0], *task.verifiers_of(segment)), task.posts_of(segment), strict=True
        )
        if operator == event.operator
    }
