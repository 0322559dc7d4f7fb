"""M19: one receipt, offline from the file alone, or against the groups and keys of a deployment's record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from troth.audit.checks import RECEIPT
from troth.audit.errors import BundleRefused
from troth.audit.report import AuditReport, CheckReport, CheckResult, Finding, FindingKind
from troth.audit.subject import AuditSubject, shown
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import messages, receipt
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.receipt import Proven, Receipt
from troth.protocol.market.signed import Opinion
from troth.protocol.types import ZERO_HASH, Hash32

NUMBER, TITLE = RECEIPT
COMPRESSED = b"\x1f\x8b"


def read_receipt(path: Path) -> Receipt:
    """A receipt's file; BundleRefused if it is none."""
    try:
        data = path.read_bytes()
        if data.startswith(COMPRESSED):
            remedy = f"If it is a bundle: troth audit market --bundle {path}"
            raise BundleRefused("The file is compressed, as bundles are, and no receipt", path, remedy)
        return receipt.decode(data)
    except OSError as error:
        raise BundleRefused(
            f"The file cannot be read: {error.strerror}", path, "Check the path and its rights."
        ) from error
    except ProtocolError as error:
        raise BundleRefused(
            f"The file is no receipt: {error.value}", path, "Use the file as it was written."
        ) from error


def audit_receipt(found: Receipt, subject: AuditSubject | None) -> AuditReport:
    """What the receipt proves; with a deployment's record also that parties were drawn and that keys are theirs."""
    order = _order(found)
    findings, notes = _findings(found, order, subject)
    last = subject.evidence.last if subject is not None else None
    return AuditReport(
        chain_id=found.chain_id,
        contract=found.bank,
        first_block=0 if subject is None else subject.evidence.first,
        last_block=0 if last is None else last.number,
        last_block_hash=ZERO_HASH if last is None else last.hash,
        tasks=(order,),
        checks=(CheckReport(NUMBER, TITLE, (CheckResult(order, tuple(findings)),)),),
        not_checked=(
            *notes,
            "Prompt and answer: the receipt holds salted hashes of them only.",
            "The model's computation: verdicts are the verifiers' own.",
        ),
        subject="receipt",
    )


def _order(found: Receipt) -> Hash32:
    return messages.order_id(found.order.message, messages.market_domain(found.chain_id, found.bank))


def _findings(
    found: Receipt, order: Hash32, subject: AuditSubject | None
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    try:
        groups = () if subject is None else _groups(found, subject)
        seasoning = 0 if subject is None else subject.evidence.parameters.seasoning
        proven = receipt.verify(found, groups, seasoning)
    except ProtocolError as error:
        action = "get it again; as it was signed, it convicts its signer (Evidence), or opens a case (Court)"
        false = Finding(NUMBER, FindingKind.CHEATED, f"The receipt does not hold: {error}", order, action=action)
        return (false,), ()
    notes = tuple(f"That {one}." for one in proven.unproven if subject is None)
    return (*_verdicts(found, order, proven), *_standing(found, order, subject)), notes


def _verdicts(found: Receipt, order: Hash32, proven: Proven) -> Iterator[Finding]:
    if proven.drawn and not proven.opinions:
        what = "The answer was drawn, and the receipt shows no check of it"
        action = "Summons.summonCheck with order, draw and secret, within half the lag after the draw"
        yield Finding(
            NUMBER, FindingKind.INCONCLUSIVE, what, order, party=found.tab.payee, role="scheduler", action=action
        )
    for segment, opinion in enumerate(proven.opinions):
        if opinion is Opinion.REJECT:
            what = f"A majority of the drawn verifiers rejects segment {segment}"
            action = "Court.open with this receipt: a tenth of the penalty is the reward"
            node = found.nodes[segment]
            yield Finding(NUMBER, FindingKind.CHEATED, what, order, segment, party=node, role="node", action=action)
        elif opinion is not Opinion.ACCEPT:
            what = f"The check of segment {segment} has no majority"
            yield Finding(NUMBER, FindingKind.INCONCLUSIVE, what, order, segment)


def _groups(found: Receipt, subject: AuditSubject) -> tuple[GroupHistory, ...]:
    order = found.order.message
    spans = messages.segments_of(order, found.model.layers)
    return tuple(subject.history.state.group(group_id(order.execution_class, span)) for span in spans)


def _standing(found: Receipt, order: Hash32, subject: AuditSubject | None) -> Iterator[Finding]:
    """Key, tab, class and voids as the chain has them."""
    if subject is None:
        return
    state, message = subject.history.state, found.order.message
    scheduler = state.parties.get(found.tab.payee)
    pairs = (
        ("Bank", found.bank, subject.evidence.place.contracts.bank),
        ("chain", found.chain_id, subject.evidence.chain_id),
        ("scheduler's VRF key", (found.vrf_x, found.vrf_y), None if scheduler is None else scheduler.vrf_key),
        ("class", found.execution_class, state.classes.get(message.execution_class)),
    )
    for name, given, known in pairs:
        if given != known:
            both = (("receipt", shown(str(given))), ("chain", shown(str(known))))
            yield Finding(NUMBER, FindingKind.MISMATCH, f"The {name} is not the chain's", order, evidence=both)
    if message.tab not in state.tabs:
        yield Finding(NUMBER, FindingKind.MISMATCH, "The tab was never opened", order)
    for segment, node in enumerate(found.nodes):
        if state.is_voided(order, segment):
            what = f"The result of segment {segment} has fallen: its fee need not be paid"
            kind, action = FindingKind.CHEATED, "acknowledge nothing for it"
        elif state.is_void(node, message.reference_block):
            # The node was convicted for another answer: this one may be right, and may have been paid before.
            what = (
                f"The node of segment {segment} was convicted for another answer: unless this one was acknowledged "
                "before, its fee need not be paid"
            )
            kind, action = FindingKind.OBSERVED, None
        else:
            continue
        yield Finding(NUMBER, kind, what, order, segment, party=node, role="node", action=action)
