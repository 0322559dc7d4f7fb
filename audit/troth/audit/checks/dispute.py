"""V12: the dispute was allowed: in its window, of a segment that can be disputed, for the right bond."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.case import TaskCase, compare, mismatch, review_group, unavailable
from troth.audit.history import Step
from troth.audit.inputs import decoded, direct, struct
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding
from troth.protocol.contract_types import Settled
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TaskDisputed
from troth.protocol.review import bond_of, fresh, is_disputable, profits, review_id
from troth.protocol.settlement import Outcome
from troth.protocol.state import TaskRecord
from troth.protocol.types import ZERO_ADDRESS

NUMBER = "V12"
TITLE = "Disputes and their bonds"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on a review's beginning; None for a task."""
    step = case.first(TaskDisputed)
    if step is None or case.review is None:
        return None
    event, record = step.event, step.before.tasks[case.review.task_id]
    assert isinstance(event, TaskDisputed)
    settled = record.settled
    if settled is None or event.segment >= record.task.progress.segments:
        return [mismatch(NUMBER, case, step, "What was disputed is no segment of a settled task")]
    findings = [mismatch(NUMBER, case, step, message) for message in _wrong(case, step, settled)]
    findings += compare(NUMBER, case, step, _terms(case, event, record, settled))
    return findings + _call(case, step, event, settled)


def _wrong(case: TaskCase, step: Step, settled: Settled) -> Iterator[str]:
    """Why the contract must refuse the dispute."""
    assert case.review is not None
    last = settled.settled_block + case.evidence.parameters.dispute_window
    if step.event.meta.block > last:
        yield f"The dispute came in block {step.event.meta.block}, the window was open until block {last}"
    if not is_disputable(settled, case.review.segment):
        yield "The segment cannot be disputed: it was not looked at, or accepted in a task that failed elsewhere"
    review = step.event
    assert isinstance(review, TaskDisputed)
    parties = step.before.tasks[review.task_id].task.parties_of(review.segment)
    left = fresh(review_group(step.before, case.task), parties)
    members = sum(member is not None for member in left)
    if members < case.definition.reviewers:
        yield f"The group has {members} members besides the segment's parties, {case.definition.reviewers} are needed"


def _terms(
    case: TaskCase, event: TaskDisputed, record: TaskRecord, settled: Settled
) -> Iterator[tuple[str, object, object]]:
    """An undecided segment costs nobody anything; a party that would profit pays less than others."""
    yield "The review's id", review_id(event.task_id, event.segment), event.review_id
    if settled.outcomes[event.segment] == Outcome.INDETERMINATE:
        yield "Disputer and bond in wei", (ZERO_ADDRESS, 0), (event.disputer, event.bond)
        return
    party = profits(record.task, settled, event.segment, event.disputer)
    yield "The bond in wei", bond_of(case.definition, party=party), event.bond


def _call(case: TaskCase, step: Step, event: TaskDisputed, settled: Settled) -> list[Finding]:
    call, transaction = decoded(case.evidence, event.meta, "dispute"), direct(case.evidence, event.meta)
    if isinstance(call, Unavailable):
        return [unavailable(NUMBER, case, step, "Who disputed", call)]
    assert not isinstance(transaction, Unavailable)
    try:
        named = struct(call, "settled", Settled)
    except (ProtocolError, ValueError) as error:
        return [mismatch(NUMBER, case, step, f"The call cannot be read: {error}")]
    differences: list[tuple[str, object, object]] = [
        ("The disputed task", bytes(call.value("taskId")), bytes(event.task_id)),
        ("The disputed segment", call.value("segment"), event.segment),
        ("The decision that the call names", named, settled),
    ]
    if event.bond:
        differences.append(("The sender of the dispute", transaction.sender, event.disputer))
    return compare(NUMBER, case, step, differences)
