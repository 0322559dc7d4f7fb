"""V11: the parties that were found wrong, late or silent, each with the slash and what it was decided from.

Whom a review acquits is not named: its slash was made good, as far as the losers' stakes went.
"""

from __future__ import annotations

from troth.audit.case import TaskCase
from troth.audit.report import Finding, Kind
from troth.protocol.events import Slashed
from troth.protocol.review import in_the_right, review_id
from troth.protocol.settlement import Outcome, SlashReason
from troth.protocol.task import Task
from troth.protocol.types import Address, Hash32

NUMBER = "V11"
TITLE = "Parties found wrong"

_MESSAGES = {
    SlashReason.REJECTED: "Inferred a segment that its verifiers reject, or did not open it",
    SlashReason.DISAGREED: "Opened a verdict or trace that the majority contradicts",
    SlashReason.UNREVEALED: "Committed and did not open in time",
    SlashReason.SCHEDULER_LATE: "Missed its own deadline",
    SlashReason.OVERTURNED: "Was wrong or silent in a decision that a review overturned",
    SlashReason.DISPUTE_LOST: "Disputed a decision that the reviewers confirm",
}
_ROLES = {
    SlashReason.REJECTED: "inferencer",
    SlashReason.SCHEDULER_LATE: "scheduler",
    SlashReason.DISPUTE_LOST: "disputer",
}


def examine(case: TaskCase) -> list[Finding] | None:
    """A violation for each slash of the task or review (equivocations are named by V10); None while it lives."""
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
            _role(case, step.event),
            step.event.amount,
            step.event.meta,
            (("decided from", "0x" + step.event.evidence.hex()),),
        )
        for step in case.of(Slashed)
        if isinstance(step.event, Slashed)
        and step.event.reason is not SlashReason.EQUIVOCATED
        and not _acquitted(case, task, step.event)
    ]


def _acquitted(case: TaskCase, task: Task, event: Slashed) -> bool:
    """Whether a review overturned what a party of the first round was slashed for."""
    segment = _segment(task, event.operator, event.evidence)
    record = case.state.tasks.get(case.task_id)
    if segment is None or record is None or record.settled is None:
        return False
    review = case.state.reviews.get(review_id(case.task_id, segment))
    decided = None if review is None else review.outcome
    if decided not in (Outcome.ACCEPTED, Outcome.REJECTED) or decided == record.settled.outcomes[segment]:
        return False
    if event.reason is SlashReason.REJECTED:
        return decided is Outcome.ACCEPTED
    verifiers = task.verifiers_of(segment)
    right = in_the_right(record.settled, segment, decided)
    return event.reason is SlashReason.DISAGREED and any(verifiers[index] == event.operator for index in right)


def _role(case: TaskCase, event: Slashed) -> str:
    """A loser of an overturned decision is a party of the first round; who disagrees or is silent is of this one."""
    if event.reason is SlashReason.OVERTURNED and case.review is not None:
        inferencer = case.disputed.task.parties_of(case.review.segment)[0]
        return "inferencer" if event.operator == inferencer else "verifier"
    return _ROLES.get(event.reason, case.roles[1])


def _segment(task: Task, operator: Address, evidence: Hash32) -> int | None:
    """The segment whose post is the evidence; None for a late scheduler."""
    if evidence not in task.progress.posts:
        return None
    segment = task.progress.posts.index(evidence) // task.posts_per_segment
    return segment if operator in task.parties_of(segment) else None
