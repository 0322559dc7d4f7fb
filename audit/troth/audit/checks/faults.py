"""V11: the parties that were found wrong, late or silent, each with the slash and what it was decided from."""

from __future__ import annotations

from troth.audit.case import TaskCase
from troth.audit.report import Finding, Kind
from troth.protocol.events import Slashed
from troth.protocol.settlement import SlashReason
from troth.protocol.task import Task
from troth.protocol.types import Address, Hash32

NUMBER = "V11"
TITLE = "Parties found wrong"

_MESSAGES = {
    SlashReason.REJECTED: "Inferred a segment that its verifiers reject, or did not open it",
    SlashReason.DISAGREED: "Opened a verdict or trace that the majority contradicts",
    SlashReason.UNREVEALED: "Committed and did not open in time",
    SlashReason.SCHEDULER_LATE: "Missed its own deadline",
}
_ROLES = {
    SlashReason.REJECTED: "inferencer",
    SlashReason.DISAGREED: "verifier",
    SlashReason.UNREVEALED: "verifier",
    SlashReason.SCHEDULER_LATE: "scheduler",
}


def examine(case: TaskCase) -> list[Finding] | None:
    """A violation for each slash of the task (equivocations are named by V10); None while it lives."""
    if case.ending is None:
        return None
    task = case.committed_task()
    return [
        Finding(
            NUMBER,
            Kind.CHEATED,
            _MESSAGES[step.event.reason],
            case.task_id,
            _segment(task, step.event.operator, step.event.evidence),
            step.event.operator,
            _ROLES[step.event.reason],
            step.event.amount,
            step.event.meta,
            (("decided from", "0x" + step.event.evidence.hex()),),
        )
        for step in case.of(Slashed)
        if isinstance(step.event, Slashed) and step.event.reason is not SlashReason.EQUIVOCATED
    ]


def _segment(task: Task, operator: Address, evidence: Hash32) -> int | None:
    """The segment whose post is the evidence; None for a late scheduler."""
    if evidence not in task.progress.posts:
        return None
    segment = task.progress.posts.index(evidence) // task.posts_per_segment
    return segment if operator in task.parties_of(segment) else None
