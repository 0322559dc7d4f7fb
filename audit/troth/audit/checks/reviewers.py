"""V13: the reviewers are those that the scheduler's VRF draws over the hash of the dispute's block."""

from __future__ import annotations

from troth.audit.case import TaskCase, compare, mismatch, review_group
from troth.audit.report import Finding
from troth.protocol import vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.events import ReviewAssigned, TaskDisputed
from troth.protocol.review import draw_alpha, draw_reviewers

NUMBER = "V13"
TITLE = "Reviewers by VRF"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the drawn reviewers; None for a task, and before there are any."""
    step, disputed = case.first(ReviewAssigned), case.first(TaskDisputed)
    if step is None or disputed is None:
        return None
    event, before = step.event, case.before(step)
    assert isinstance(event, ReviewAssigned)
    scheduler = step.before.schedulers.get(before.terms.scheduler)
    if scheduler is None:
        return [mismatch(NUMBER, case, step, "No scheduler with a VRF key is registered", party=before.terms.scheduler)]
    members = review_group(step.before, before)
    block_hash = disputed.event.meta.block_hash
    alpha = draw_alpha(case.evidence.domain, case.task_id, group_size=len(members), block_hash=block_hash)
    first = before.progress.parties
    try:
        beta = vrf.verify(scheduler.vrf_key, alpha, event.proof)
        drawn = draw_reviewers(event.beta, members, first, case.definition.reviewers)
    except ProtocolError as error:
        return [mismatch(NUMBER, case, step, f"The draw does not hold: {error}", party=scheduler.operator)]
    differences = [("The VRF output", beta, event.beta), ("The parties", (first[0], *drawn), event.parties)]
    return compare(NUMBER, case, step, differences)
