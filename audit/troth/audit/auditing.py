"""The audit itself: evidence in, report out. Pure; nothing here reads a file or a socket."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from troth.audit.case import TaskCase, attributed, open_case, open_review
from troth.audit.checks import EQUIVOCATION, NUMBERS, STREAM, TASK_CHECKS, TaskCheck, equivocation, event_stream
from troth.audit.evidence import Evidence
from troth.audit.history import History
from troth.audit.report import CheckReport, Finding, Kind, Report, Result
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Hash32

NOT_CHECKED = (
    "The model's computation: no layer is run again; verdicts are the verifiers' own.",
    "Prompts and outputs: the chain holds salted hashes of them only.",
    "Rows that were streamed between parties, unless a proof of equivocation shows them.",
    "Whether the scheduler served the client, and how fast.",
)


def audit(
    evidence: Evidence,
    history: History,
    tasks: Collection[Hash32],
    *,
    blocks: range = range(0),
    only: Collection[str] = NUMBERS,
    notes: Iterable[str] = (),
) -> Report:
    """Run the checks numbered in ``only`` on ``tasks``, all of which ``history`` has seen opened.

    Equivocations in ``blocks`` are examined too, whatever their task, which need not have been opened.
    """
    cases = [case for task in tasks for case in _cases(evidence, history, task)]
    reports = {check.number: _each(check, cases) for check in TASK_CHECKS if check.number in only}
    if STREAM[0] in only:
        reports[STREAM[0]] = CheckReport(*STREAM, event_stream.examine(evidence, history))
    if EQUIVOCATION[0] in only:
        reports[EQUIVOCATION[0]] = CheckReport(
            *EQUIVOCATION, equivocation.examine(evidence, history, frozenset(tasks), blocks)
        )
    return Report(
        chain_id=evidence.chain_id,
        contract=evidence.contract,
        first_block=evidence.first,
        last_block=evidence.last.number,
        last_block_hash=evidence.last.hash,
        tasks=tuple(tasks),
        checks=tuple(reports[number] for number in NUMBERS if number in reports),
        not_checked=(*NOT_CHECKED, *_unasked(evidence), *_left_out(only), *notes),
    )


def _cases(evidence: Evidence, history: History, task: Hash32) -> Iterable[TaskCase]:
    """The case of a task, then those of its reviews."""
    yield open_case(evidence, history, task)
    for review in history.reviews_of(task):
        yield open_review(evidence, history, review)


def _each(check: TaskCheck, cases: Iterable[TaskCase]) -> CheckReport:
    results = []
    for case in cases:
        try:
            findings = check.examine(case)
        except (ProtocolError, ValueError, LookupError, ArithmeticError) as error:
            # A record so malformed that a check cannot read it: not a clean bill, and no reason to lose the others.
            what = f"The check could not be carried out: {type(error).__name__}: {error}"
            findings = [Finding(check.number, Kind.INCOMPLETE, what, case.task_id)]
        if findings is not None:
            subject = case.task_id if case.review is None else case.review.task_id
            results.append(Result(subject, tuple(attributed(case, finding) for finding in findings)))
    return CheckReport(check.number, check.title, tuple(results))


def _left_out(only: Collection[str]) -> tuple[str, ...]:
    return tuple(f"Check {number}: left out on demand." for number in NUMBERS if number not in only)


def _unasked(evidence: Evidence) -> tuple[str, ...]:
    if evidence.balance is not None:
        return ()
    return ("The contract's balance at the last block: no node was asked, or it keeps no old states.",)


def opened_tasks(history: History) -> tuple[Hash32, ...]:
    """All tasks in the order in which they were opened."""
    return tuple(sorted(history.state.tasks, key=lambda task: history.steps[task][0].event.meta))


def tasks_between(history: History, first: int, last: int) -> tuple[Hash32, ...]:
    """Tasks with at least one event in blocks ``first`` to ``last``, in the order in which they were opened."""
    return tuple(
        task
        for task in opened_tasks(history)
        if any(first <= step.event.meta.block <= last for step in history.with_reviews(task))
    )
