"""V8: agreement, clusters and outcome follow from the openings (VeriLLM, equation 29 and Appendix E)."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.case import TaskCase, compare, mismatch, unavailable
from troth.audit.decisions import decide
from troth.audit.history import Step
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding, Kind
from troth.audit.shown import Shown
from troth.protocol.errors import ProtocolError
from troth.protocol.events import ReviewSettled, TaskSettled
from troth.protocol.settlement import Outcome, TaskDecision
from troth.protocol.slots import restated
from troth.protocol.state import TaskRecord
from troth.protocol.task import Task

NUMBER = "V8"
TITLE = "Agreement, clusters, outcome"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the decision; None for a task or review that was not settled."""
    step, shown = case.settlement, case.shown
    if step is None or shown is None:
        return None
    undecided = _undecided(case, step)
    if isinstance(shown, Unavailable):
        return [unavailable(NUMBER, case, step, "The decision", shown), *undecided]
    return _recomputed(case, step, shown) + undecided


def _undecided(case: TaskCase, step: Step) -> list[Finding]:
    """Neither kind of round decided; a review that decides ends the doubt of the first."""
    event, stands = step.event, case.record.outcome
    assert isinstance(event, TaskSettled | ReviewSettled)
    if event.outcome is not Outcome.INDETERMINATE or stands is not Outcome.INDETERMINATE:
        return []
    message = f"The {case.roles[1]}s found no majority: neither the result nor an error of it is proven"
    return [Finding(NUMBER, Kind.INCONCLUSIVE, message, case.task_id, place=event.meta)]


def _recomputed(case: TaskCase, step: Step, shown: Shown) -> list[Finding]:
    event, task = step.event, case.before(step)
    try:
        decision = decide(case, task, shown)
    except (ProtocolError, ValueError) as error:
        return [mismatch(NUMBER, case, step, f"No decision can be taken from these openings: {error}")]
    clusters, valid = (
        tuple(sum(1 << index for index in getattr(segment, name)) for segment in decision.segments)
        for name in ("cluster", "valid")
    )
    if isinstance(event, ReviewSettled):
        first = step.before.tasks[event.task_id]
        return compare(NUMBER, case, step, _review_differences(event, first, decision, _verdicts(task, shown)[0]))
    assert isinstance(event, TaskSettled)
    return compare(
        NUMBER,
        case,
        step,
        [
            ("The outcome", decision.outcome.name, event.outcome.name),
            (
                "The segments' outcomes",
                tuple(segment.outcome.name for segment in decision.segments),
                tuple(outcome.name for outcome in event.segment_outcomes),
            ),
            ("The verdicts", _verdicts(task, shown), event.verdicts),
            ("The clusters", clusters, event.clusters),
            ("The valid verdicts", valid, event.valid),
        ],
    )


def _review_differences(
    event: ReviewSettled, first: TaskRecord, decision: TaskDecision, verdicts: int
) -> Iterator[tuple[str, object, object]]:
    (segment,) = decision.segments
    yield "The outcome", segment.outcome.name, event.outcome.name
    yield "How the task stands", restated(first, event.segment, segment.outcome).name, event.task_outcome.name
    yield "The verdicts", verdicts, event.verdicts
    yield "The cluster", sum(1 << index for index in segment.cluster), event.cluster


def _verdicts(task: Task, shown: Shown) -> tuple[int, ...]:
    """Per segment, bit v is set if verifier v opened the verdict true."""
    width = task.posts_per_segment
    masks = []
    for start in range(0, len(shown.openings), width):
        verifiers = shown.openings[start + 1 : start + width]
        masks.append(sum(1 << v for v, opening in enumerate(verifiers) if opening is not None and opening.verdict))
    return tuple(masks)
