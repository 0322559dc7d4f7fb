"""V6: the sample is the scheduler's VRF over all posts and the hash of the block that completed them."""

from __future__ import annotations

from troth.audit.case import TaskCase, compare, mismatch
from troth.audit.report import Finding
from troth.protocol import vrf
from troth.protocol.assignment import sample_alpha
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TaskCommitted, TaskSampled

NUMBER = "V6"
TITLE = "Sample by VRF and block hash"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the seed; None while there is none, as in an exact class."""
    step, committed = case.first(TaskSampled), case.first(TaskCommitted)
    if step is None:
        return None
    event = step.event
    assert isinstance(event, TaskSampled)
    scheduler = step.before.schedulers.get(case.task.terms.scheduler)
    if committed is None or scheduler is None:
        return [mismatch(NUMBER, case, step, "A sample without commitments or without a scheduler's VRF key")]
    alpha = sample_alpha(
        case.evidence.domain,
        case.task_id,
        posts=case.before(step).progress.posts,
        block_hash=committed.event.meta.block_hash,
    )
    try:
        seed = vrf.verify(scheduler.vrf_key, alpha, event.proof)
    except ProtocolError as error:
        return [mismatch(NUMBER, case, step, f"The sampling proof does not hold: {error}", party=scheduler.operator)]
    return compare(NUMBER, case, step, [("The seed", seed, event.seed)])
