"""The numbered checks. Numbers and titles are the same here, in docs/auditors.md and in every output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from troth.audit.case import TaskCase
from troth.audit.checks import (
    assignment,
    commitments,
    decision,
    dispute,
    equivocation,
    event_stream,
    faults,
    money,
    openings,
    order,
    phases,
    reviewers,
    sampling,
)
from troth.audit.report import Finding


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """A check that looks at one task at a time; ``examine`` gives None where it does not apply."""

    number: str
    title: str
    examine: Callable[[TaskCase], list[Finding] | None]


STREAM = (event_stream.NUMBER, event_stream.TITLE)
EQUIVOCATION = (equivocation.NUMBER, equivocation.TITLE)

_BOTH_ROUNDS = (order, assignment, commitments, phases, sampling, openings, decision, money, faults)
TASK_CHECKS = tuple(
    TaskCheck(module.NUMBER, module.TITLE, module.examine) for module in (*_BOTH_ROUNDS, dispute, reviewers)
)

NUMBERS = tuple(
    sorted((STREAM[0], EQUIVOCATION[0], *(check.number for check in TASK_CHECKS)), key=lambda number: int(number[1:]))
)
"""V1 to V13, in order."""
