"""The decision that a task's openings call for (VeriLLM, Appendix E), from what its parties showed."""

from __future__ import annotations

from troth.audit.case import TaskCase
from troth.audit.shown import Shown
from troth.protocol.agreement import AgreementRule
from troth.protocol.dtype import Dtype
from troth.protocol.settlement import Party, SegmentFindings, TaskDecision, decide_task
from troth.protocol.task import Task
from troth.protocol.types import ZERO_HASH


def decide(case: TaskCase, task: Task, shown: Shown) -> TaskDecision:
    """Recomputed from the openings; raises ProtocolError if no decision can be taken from them."""
    rules = case.definition
    rule = None if rules.exact else AgreementRule(Dtype(rules.dtype), rules.mantissa_bits, rules.steps, rules.theta)
    return decide_task([_segment(task, shown, segment, rule) for segment in range(task.progress.segments)])


def _segment(task: Task, shown: Shown, segment: int, rule: AgreementRule | None) -> SegmentFindings:
    members = (task.parties_of(segment)[0], *task.verifiers_of(segment))
    posts, start = task.posts_of(segment), segment * task.posts_per_segment
    inferencer, *verifiers = (
        Party(operator, post != ZERO_HASH, shown.revealed(start + party))
        for party, (operator, post) in enumerate(zip(members, posts, strict=True))
    )
    return SegmentFindings(inferencer, tuple(verifiers), rule)
