"""V2: the client signed this order, and the scheduler was allowed to open it on these terms."""

from __future__ import annotations

from troth.audit.case import TaskCase, compare, mismatch, unavailable
from troth.audit.history import Step
from troth.audit.inputs import task_call
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding
from troth.protocol.calls import OpenAndCommitCall, OpenCall
from troth.protocol.contract_types import REFERENCE_AGE, Role
from troth.protocol.types import unpack_ends
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TaskOpened
from troth.protocol.identifiers import fee, task_id
from troth.protocol.typed_data import recover_digest

NUMBER = "V2"
TITLE = "Order, fee and client's signature"


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on the opening."""
    step = case.first(TaskOpened)
    if step is None:
        return None
    assert isinstance(step.event, TaskOpened)
    findings = _terms(case, step, step.event) + _standing(case, step, step.event)
    call = task_call(case.evidence, step.event.meta, OpenCall, OpenAndCommitCall)
    if isinstance(call, Unavailable):
        return [*findings, unavailable(NUMBER, case, step, "The order and its signature", call)]
    assert isinstance(call, OpenCall | OpenAndCommitCall)
    return findings + _order(case, step, step.event, call)


def _terms(case: TaskCase, step: Step, event: TaskOpened) -> list[Finding]:
    ends = unpack_ends(event.ends)
    rising = all(first < end for first, end in zip((0, *ends), ends, strict=False))
    age = event.meta.block - event.reference_block
    findings = compare(
        NUMBER,
        case,
        step,
        [
            ("The fee", fee(case.definition, len(ends)), event.fee),
            ("The last layer of the split", case.model.layers, ends[-1] if rising else ends),
        ],
    )
    if not 0 < age <= REFERENCE_AGE:
        message = f"The reference block lies {age} blocks back, not 1 to {REFERENCE_AGE}"
        findings.append(mismatch(NUMBER, case, step, message))
    return findings


def _standing(case: TaskCase, step: Step, event: TaskOpened) -> list[Finding]:
    account = step.before.account(event.scheduler)
    minimum = case.evidence.parameters.minimum_scheduler_stake
    if account.role is Role.SCHEDULER and account.exit_block == 0 and account.stake >= minimum:
        return []
    message = f"The scheduler was not bonded with {minimum} wei when it opened the task"
    return [mismatch(NUMBER, case, step, message, party=event.scheduler, role="scheduler")]


def _order(case: TaskCase, step: Step, event: TaskOpened, call: OpenCall | OpenAndCommitCall) -> list[Finding]:
    order = call.order
    digest = task_id(order, case.evidence.domain)
    findings = compare(
        NUMBER,
        case,
        step,
        [
            ("The task id", digest, event.task_id),
            ("The execution class", order.execution_class, event.execution_class),
            ("The request hash", order.request_hash, event.request_hash),
            ("The scheduler", order.scheduler, event.scheduler),
            ("The reference block", order.reference_block, event.reference_block),
            ("The layer split", order.ends, event.ends),
        ],
    )
    if event.fee > order.max_fee:
        findings.append(mismatch(NUMBER, case, step, f"The fee exceeds the {order.max_fee} wei that the client allows"))
    header = case.evidence.headers.get(event.meta.block)
    if header is not None and header.timestamp > order.deadline:
        findings.append(mismatch(NUMBER, case, step, f"The order had expired at {order.deadline}"))
    try:
        findings += compare(
            NUMBER, case, step, [("The order's signer", recover_digest(digest, call.signature), event.client)]
        )
    except ProtocolError as error:
        findings.append(mismatch(NUMBER, case, step, f"The order carries no valid signature: {error}"))
    return findings
