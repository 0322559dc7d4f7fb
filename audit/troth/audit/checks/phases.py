"""V5: the task went through its phases in order, each step inside its window of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from troth.audit.case import TaskCase, mismatch
from troth.audit.history import Step
from troth.audit.inputs import decoded
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding, Kind
from troth.audit.shown import Shown
from troth.protocol.events import (
    InferenceCommitted,
    ReviewAssigned,
    ReviewEvent,
    ReviewExpired,
    ReviewSettled,
    TaskAborted,
    TaskAssigned,
    TaskCommitted,
    TaskEvent,
    TaskExpired,
    TaskSampled,
    TaskSettled,
    TraceRevealed,
    VerificationCommitted,
)
from troth.protocol.review import DRAW_WINDOW
from troth.protocol.task import Phase, Task
from troth.protocol.types import ZERO_HASH

NUMBER = "V5"
TITLE = "Phases and deadlines"

NO_LIMIT = 2**64

_Moving = (
    TaskAssigned
    | InferenceCommitted
    | VerificationCommitted
    | TaskCommitted
    | TaskSampled
    | TraceRevealed
    | TaskSettled
    | TaskAborted
    | TaskExpired
    | ReviewAssigned
    | ReviewSettled
    | ReviewExpired
)
_TASKS_ONLY = TaskAssigned | InferenceCommitted | TaskSettled | TaskAborted | TaskExpired
"""What never happens to a review."""


@dataclass(frozen=True, slots=True)
class Window:
    """Phases in which a step is allowed, and its blocks after the phase began: ``after`` < age <= ``until``."""

    phases: tuple[Phase, ...]
    after: int
    until: int


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on every step after the opening, and on a live task or review that nobody moves on."""
    findings = [
        finding for step in case.steps if isinstance(step.event, _Moving) for finding in _step(case, step, step.event)
    ]
    return findings + _silence(case) + _overdue(case)


def _step(case: TaskCase, step: Step, event: _Moving) -> list[Finding]:
    record = case.record_before(step)
    name = type(event).__name__
    if case.review is not None and isinstance(event, _TASKS_ONLY):
        return [mismatch(NUMBER, case, step, f"{name} is no step of a review")]
    if record.outcome is not None:
        return [mismatch(NUMBER, case, step, f"{name} follows the end of the task")]
    progress = record.task.progress
    window = _window(case, step, event, record.task)
    if progress.phase not in window.phases:
        return [mismatch(NUMBER, case, step, f"{name} cannot happen in phase {progress.phase.name}")]
    age = event.meta.block - progress.phase_block
    if not window.after < age <= window.until:
        bound = f"more than {window.after}" if age <= window.after else f"at most {window.until}"
        return [mismatch(NUMBER, case, step, f"{name} came {age} blocks into the phase, {bound} are right")]
    return []


def _window(case: TaskCase, step: Step, event: TaskEvent | ReviewEvent, task: Task) -> Window:
    limits, exact = case.evidence.parameters, case.definition.exact
    revealing = Phase.COMMITTED if exact else Phase.SAMPLED
    match event:
        case TaskAssigned():
            return Window((Phase.OPENED,), -1, limits.commit_window)
        case ReviewAssigned():
            return Window((Phase.DISPUTED,), 0, _draw_window(case))
        case TaskAborted():
            return Window((Phase.OPENED, Phase.ASSIGNED), -1, limits.commit_window)
        case TaskCommitted():
            return Window((Phase.ASSIGNED,), _sealed_after(case, step), limits.commit_window)
        case InferenceCommitted() | VerificationCommitted():
            return Window((Phase.ASSIGNED,), -1, limits.commit_window)
        case TaskSampled():
            return Window(() if exact else (Phase.COMMITTED,), 0, limits.sample_window)
        case TraceRevealed():
            return Window((revealing,), 0 if exact else -1, limits.reveal_window)
        case TaskSettled() | ReviewSettled():
            return Window((revealing,), 0 if exact else -1, NO_LIMIT)
        case _:
            return _closing(case, task)


def _sealed_after(case: TaskCase, step: Step) -> int:
    """Posts of their own may be closed with a quorum once half the window has passed."""
    call = decoded(case.evidence, step.event.meta, "seal")
    return -1 if isinstance(call, Unavailable) else case.evidence.parameters.commit_window // 2


def _closing(case: TaskCase, task: Task) -> Window:
    limits = case.evidence.parameters
    if task.progress.phase is Phase.COMMITTED and not case.definition.exact:
        return Window((Phase.COMMITTED,), limits.sample_window, NO_LIMIT)
    if task.progress.phase is Phase.DISPUTED:
        return Window((Phase.DISPUTED,), _draw_window(case), NO_LIMIT)
    if case.review is not None:
        return Window((Phase.ASSIGNED,), limits.commit_window, NO_LIMIT)
    return Window((Phase.OPENED, Phase.ASSIGNED), limits.commit_window, NO_LIMIT)


def _draw_window(case: TaskCase) -> int:
    """The hash of the dispute's block is known no longer."""
    return min(case.evidence.parameters.commit_window, DRAW_WINDOW)


def _silence(case: TaskCase) -> list[Finding]:
    """A settlement may pass over an opening only after the reveal window."""
    ending = case.ending
    if ending is None or not isinstance(case.shown, Shown):
        return []
    progress = case.before(ending).progress
    silent = any(
        post != ZERO_HASH and opening is None for post, opening in zip(progress.posts, case.shown.openings, strict=True)
    )
    last = progress.phase_block + case.evidence.parameters.reveal_window
    if silent and ending.event.meta.block <= last:
        return [mismatch(NUMBER, case, ending, f"An opening is missing though the window was open until block {last}")]
    return []


def _overdue(case: TaskCase) -> list[Finding]:
    """A live task or review whose deadline has passed: anyone may end it, and until then nothing is proven."""
    if case.record.outcome is not None:
        return []
    limits, progress = case.evidence.parameters, case.task.progress
    scheduler = case.task.terms.scheduler
    if progress.phase is Phase.DISPUTED:
        window, remedy, late = _draw_window(case), "close", scheduler
    elif progress.phase <= Phase.ASSIGNED:
        window, remedy, late = limits.commit_window, "close", scheduler
    elif progress.phase is Phase.COMMITTED and not case.definition.exact:
        window, remedy, late = limits.sample_window, "close", scheduler
    else:
        window, remedy, late = limits.reveal_window, "settle", None
    deadline = progress.phase_block + window
    if case.evidence.last.number <= deadline:
        return []
    return [
        Finding(
            NUMBER,
            Kind.INCONCLUSIVE,
            f"It waits in phase {progress.phase.name} past block {deadline}; anyone may {remedy} it",
            case.task_id,
            party=late,
            role=None if late is None else "scheduler",
        )
    ]
