"""V3: the parties are those that the scheduler's VRF draws from the groups at the reference block."""

from __future__ import annotations

from troth.audit.case import TaskCase, compare, mismatch
from troth.audit.history import Step
from troth.audit.report import Finding
from troth.protocol import vrf
from troth.protocol.assignment import Members, assignment_alpha, draw
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TaskAssigned
from troth.protocol.identifiers import group_id

NUMBER = "V3"
TITLE = "Assignment by VRF"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the drawn parties; None before there are any."""
    step = case.first(TaskAssigned)
    if step is None:
        return None
    event = step.event
    assert isinstance(event, TaskAssigned)
    terms = case.task.terms
    segments, width = terms.segments, case.definition.parties
    counts = (len(event.parties), len(event.betas), len(event.proofs))
    if counts != (width * len(segments), len(segments), len(segments)):
        return [mismatch(NUMBER, case, step, f"Parties, outputs and proofs are {counts} in number")]
    scheduler = step.before.schedulers.get(terms.scheduler)
    if scheduler is None:
        return [mismatch(NUMBER, case, step, "No scheduler with a VRF key is registered", party=terms.scheduler)]
    findings: list[Finding] = []
    for segment, layers in enumerate(segments):
        group = step.before.groups.get(group_id(terms.execution_class, layers))
        members = [] if group is None else group.members_at(terms.reference_block)
        findings += _segment(case, step, segment, members, scheduler.vrf_key)
    return findings


def _segment(case: TaskCase, step: Step, segment: int, members: Members, key: tuple[int, int]) -> list[Finding]:
    event, terms = step.event, case.task.terms
    assert isinstance(event, TaskAssigned)
    alpha = assignment_alpha(
        case.evidence.domain,
        case.task_id,
        segment,
        group_size=len(members),
        reference_block=terms.reference_block,
    )
    width = case.definition.parties
    try:
        beta = vrf.verify(key, alpha, event.proofs[segment])
        drawn = draw(event.betas[segment], members, width)
    except ProtocolError as error:
        return [mismatch(NUMBER, case, step, f"The draw does not hold: {error}", segment=segment)]
    parties = event.parties[segment * width : (segment + 1) * width]
    differences = [("The VRF output", beta, event.betas[segment]), ("The parties", drawn, parties)]
    return compare(NUMBER, case, step, differences, segment)
