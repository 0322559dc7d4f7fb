"""V10: who was slashed for signing two rows for one position did sign them; who did is named."""

from __future__ import annotations

from troth.audit.evidence import Evidence
from troth.audit.history import History, Step, equivocations
from troth.audit.inputs import decoded, struct
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding, Kind, Result
from troth.protocol.calls import DecodedCall
from troth.protocol.contract_types import Role
from troth.protocol.errors import ProtocolError
from troth.protocol.events import Credited, EquivocationProven, Slashed
from troth.protocol.hashing import keccak256
from troth.protocol.settlement import SlashReason
from troth.protocol.typed_data import digest, recover
from troth.protocol.types import Address, Hash32, Row

NUMBER = "V10"
TITLE = "Equivocations"

REPORTER_SHARE = 4
"""The reporter gets one part in this many of the stake; a constant of the contract."""


def examine(evidence: Evidence, history: History, tasks: frozenset[Hash32], blocks: range) -> tuple[Result, ...]:
    """One result per equivocation proven of ``tasks`` or in ``blocks``; none of them is in order."""
    return tuple(
        Result(step.event.task_id, tuple(_one(evidence, history, step)))
        for step in equivocations(history)
        if isinstance(step.event, EquivocationProven)
        and (step.event.task_id in tasks or step.event.meta.block in blocks)
    )


def _one(evidence: Evidence, history: History, step: Step) -> list[Finding]:
    event = step.event
    assert isinstance(event, EquivocationProven)
    call = decoded(evidence, event.meta, "proveEquivocation")
    if isinstance(call, Unavailable):
        kind = Kind.MISMATCH if call.impossible else Kind.INCONCLUSIVE
        message = f"The two signed rows: {call.reason}"
        shown = [Finding(NUMBER, kind, message, event.task_id, event.segment, event.signer, place=event.meta)]
        return [_named(history, step, event, Hash32(bytes(32))), *shown]
    wrong, proof = _rows(evidence, event, call)
    wrong += _money(evidence, history, step, event, proof)
    findings = [
        Finding(NUMBER, Kind.MISMATCH, what, event.task_id, event.segment, event.signer, place=event.meta)
        for what in wrong
    ]
    return findings or [_named(history, step, event, proof)]


def _rows(evidence: Evidence, event: EquivocationProven, call: DecodedCall) -> tuple[list[str], Hash32]:
    """What is wrong with the proof, and the hash of both rows' digests."""
    try:
        first, second = struct(call, "a", Row), struct(call, "b", Row)
        digests = digest(first, evidence.domain), digest(second, evidence.domain)
        signers = (
            recover(first, evidence.domain, call.value("signatureA")),
            recover(second, evidence.domain, call.value("signatureB")),
        )
    except (ProtocolError, ValueError) as error:
        return [f"The proof cannot be read: {error}"], Hash32(bytes(32))
    wrong = []
    place = (event.task_id, event.segment, event.attempt, event.position)
    if _place(first) != place or _place(second) != place:
        wrong.append("The rows are not of the task, segment, attempt and position that the event names")
    if digests[0] == digests[1]:
        wrong.append("Both rows are the same")
    if signers != (event.signer, event.signer):
        wrong.append(f"The rows were signed by {signers[0]} and {signers[1]}")
    return wrong, Hash32(keccak256(digests[0] + digests[1]))


def _place(row: Row) -> tuple[Hash32, int, int, int]:
    return row.task_id, row.segment, row.attempt, row.position


def _money(evidence: Evidence, history: History, step: Step, event: EquivocationProven, proof: Hash32) -> list[str]:
    account = step.before.account(event.signer)
    slashable = account.exit_block == 0 or event.meta.block <= account.exit_block
    taken = account.stake if slashable else 0
    slash = _slash(history, event)
    wrong = []
    if slash is None or (slash.operator, slash.amount) != (event.signer, taken):
        wrong.append(f"The whole stake of {taken} wei was not slashed")
    elif slash.evidence != proof:
        wrong.append("The slash names other evidence than both rows' digests")
    share = taken // REPORTER_SHARE
    due = [(event.reporter, share), (evidence.parameters.reserve, taken - share)]
    if _credits(history, event) != sorted((account, wei) for account, wei in due if wei):
        wrong.append(f"Reporter and reserve were not credited {share} and {taken - share} wei")
    return wrong


def _slash(history: History, event: EquivocationProven) -> Slashed | None:
    for other in history.steps[event.task_id]:
        found = other.event
        if (
            isinstance(found, Slashed)
            and found.reason is SlashReason.EQUIVOCATED
            and found.meta.transaction == event.meta.transaction
        ):
            return found
    return None


def _credits(history: History, event: EquivocationProven) -> list[tuple[Address, int]]:
    return sorted(
        (other.event.account, other.event.amount)
        for other in history.steps[event.task_id]
        if isinstance(other.event, Credited) and other.event.meta.transaction == event.meta.transaction
    )


def _named(history: History, step: Step, event: EquivocationProven, proof: Hash32) -> Finding:
    slash = _slash(history, event)
    role = "scheduler" if step.before.account(event.signer).role is Role.SCHEDULER else "node"
    return Finding(
        NUMBER,
        Kind.CHEATED,
        f"Signed two different rows for position {event.position}",
        event.task_id,
        event.segment,
        event.signer,
        role,
        None if slash is None else slash.amount,
        event.meta,
        (("both rows' digests", "0x" + proof.hex()),),
    )
