"""One task as the checks see it: its record, its steps, its class and model, what its parties showed.

A review is a case of its own, like that of a task of one segment with the reviewers as verifiers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from troth.audit.evidence import Evidence
from troth.audit.history import History, Step
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding, Kind
from troth.audit.shown import Shown, read_review_shown, read_shown
from troth.protocol.assignment import Members
from troth.protocol.events import ReviewExpired, ReviewSettled, TaskAborted, TaskExpired, TaskSettled
from troth.protocol.identifiers import group_id
from troth.protocol.state import ReviewRecord, State, TaskRecord
from troth.protocol.task import Task
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor


@dataclass(frozen=True, slots=True, eq=False)
class TaskCase:
    """``shown`` is None while the task is not settled. ``state`` is that of the last block.

    Of a review, ``task_id`` and ``task`` are its own, and ``definition`` is the class with its reviewers as verifiers.
    """

    evidence: Evidence
    state: State
    task_id: Hash32
    record: TaskRecord | ReviewRecord
    steps: tuple[Step, ...]
    definition: ExecutionClass
    model: ModelDescriptor
    shown: Shown | Unavailable | None

    def first(self, kind: type[Any]) -> Step | None:
        """The first step of a kind."""
        return next((step for step in self.steps if isinstance(step.event, kind)), None)

    def of(self, *kinds: type[Any]) -> tuple[Step, ...]:
        """All steps of some kinds."""
        return tuple(step for step in self.steps if isinstance(step.event, kinds))

    @property
    def review(self) -> ReviewRecord | None:
        """The record of a review; None for a task."""
        return self.record if isinstance(self.record, ReviewRecord) else None

    @property
    def disputed(self) -> TaskRecord:
        """The task that a review is of, at the last block."""
        assert isinstance(self.record, ReviewRecord)
        return self.state.tasks[self.record.task_id]

    @property
    def roles(self) -> tuple[str, str]:
        """What the party of a root and the party of a commitment are called."""
        return "inferencer", "verifier" if self.review is None else "reviewer"

    @property
    def task(self) -> Task:
        """The task at the last block."""
        return self.record.task

    def before(self, step: Step) -> Task:
        """The task just before a step that is not its opening."""
        return self.record_before(step).task

    def record_before(self, step: Step) -> TaskRecord | ReviewRecord:
        """The record just before a step that is not its opening."""
        return step.before.tasks[self.task_id] if self.review is None else step.before.reviews[self.task_id]

    @property
    def settlement(self) -> Step | None:
        """The step with which the task was decided."""
        return self.first(TaskSettled if self.review is None else ReviewSettled)

    @property
    def ending(self) -> Step | None:
        """The step with which the task ended."""
        return self.settlement or self.first(TaskAborted) or self.first(TaskExpired) or self.first(ReviewExpired)

    def committed_task(self) -> Task:
        """The task as it stood when it ended, or as it stands."""
        ending = self.ending
        return self.task if ending is None else self.before(ending)


def review_group(state: State, review: Task) -> Members:
    """Members of a review's group at its dispute's block, by slot."""
    (layers,) = review.terms.segments
    group = state.groups.get(group_id(review.terms.execution_class, layers))
    return [] if group is None else group.members_at(review.terms.reference_block)


def open_case(evidence: Evidence, history: History, task_id: Hash32) -> TaskCase:
    """The case of a task that was opened."""
    record = history.state.tasks[task_id]
    definition = history.state.classes[record.task.terms.execution_class]
    steps = history.steps[task_id]
    settled = next((step for step in steps if isinstance(step.event, TaskSettled)), None)
    return TaskCase(
        evidence=evidence,
        state=history.state,
        task_id=task_id,
        record=record,
        steps=steps,
        definition=definition,
        model=history.state.models[definition.model],
        shown=None if settled is None else read_shown(evidence, settled, task_id, 1 + definition.verifiers),
    )


def open_review(evidence: Evidence, history: History, review_id: Hash32) -> TaskCase:
    """The case of a review that began."""
    record = history.state.reviews[review_id]
    rules = history.state.classes[record.review.terms.execution_class]
    steps = history.steps[review_id]
    settled = next((step for step in steps if isinstance(step.event, ReviewSettled)), None)
    return TaskCase(
        evidence=evidence,
        state=history.state,
        task_id=review_id,
        record=record,
        steps=steps,
        definition=replace(rules, candidates=1, verifiers=rules.reviewers),
        model=history.state.models[rules.model],
        shown=None if settled is None else read_review_shown(evidence, settled, record, 1 + rules.reviewers),
    )


def attributed(case: TaskCase, finding: Finding) -> Finding:
    """A finding about a review, told of the task and the segment that it is about."""
    if case.review is None or finding.task_id != case.task_id:
        return finding
    message = f"In the review of segment {case.review.segment}: {finding.message}"
    return replace(finding, message=message, task_id=case.review.task_id, segment=case.review.segment)


def shorten(value: object) -> str:
    """A value as a message shows it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, tuple):
        return "(" + ", ".join(shorten(item) for item in value) + ")"
    return str(value)


Differences = Iterable[tuple[str, object, object]]
"""What is compared, its recomputed value, its value on chain."""


def compare(
    check: str, case: TaskCase, step: Step, differences: Differences, segment: int | None = None
) -> list[Finding]:
    """A mismatch for each difference that is one."""
    return [
        Finding(
            check,
            Kind.MISMATCH,
            f"{what} is not what its recomputation gives",
            case.task_id,
            segment,
            place=step.event.meta,
            evidence=(("recomputed", shorten(expected)), ("on chain", shorten(actual))),
        )
        for what, expected, actual in differences
        if expected != actual
    ]


def mismatch(
    check: str,
    case: TaskCase,
    step: Step,
    message: str,
    *,
    segment: int | None = None,
    party: Address | None = None,
    role: str | None = None,
) -> Finding:
    """The contract accepted what it must refuse."""
    return Finding(check, Kind.MISMATCH, message, case.task_id, segment, party, role, place=step.event.meta)


def unavailable(check: str, case: TaskCase, step: Step, what: str, reason: Unavailable) -> Finding:
    """``what`` could not be checked, or, if the transaction cannot have emitted the event, is wrong."""
    kind = Kind.MISMATCH if reason.impossible else Kind.INCONCLUSIVE
    return Finding(check, kind, f"{what}: {reason.reason}", case.task_id, place=step.event.meta)
