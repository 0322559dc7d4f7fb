"""M10: who was convicted, and the evidence in the calls. M11: summonses, their answers and their silences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from troth.audit.checks import disputes
from troth.audit.evidence.inputs import Unavailable, call_behind, value
from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject, unavailable
from troth.protocol import typed_data, vrf
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.market import convictions, messages, token_proofs
from troth.protocol.market.convictions import Conviction
from troth.protocol.market.events import (
    Convicted,
    FaultProven,
    NodeSilent,
    PassedOn,
    Responded,
    Summoned,
    SummonsAnswered,
    SummonsUnanswered,
)
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault, SummonsKind
from troth.protocol.market.signed import Admission, Draw, Row, SignedOrder, TraceCommitment, Verdict, VrfProof
from troth.protocol.market.signed import Result as NodeResult
from troth.protocol.market.state import State
from troth.protocol.types import Hash32

_PAIRS: Mapping[str, tuple[type[Any], Callable[..., Conviction]]] = {
    "convictResults": (NodeResult, convictions.two_results),
    "convictRows": (Row, convictions.two_rows),
    "convictVerdicts": (Verdict, convictions.two_verdicts),
}
_FUNCTIONS = (
    *_PAIRS,
    "convictCommitment",
    "convictAdmissions",
    "convictDraws",
    "convictNodes",
    "convictBeta",
    "convictHeads",
    "convictPayer",
    "convictByProof",
    "date",
)


def _convictions(subject: AuditSubject) -> Iterator[CheckResult]:
    for event, before in subject.history.of(FaultProven):
        yield CheckResult(event.subject, tuple(_proven(subject, event, before)))
    for conviction, _ in subject.history.of(Convicted):
        yield CheckResult(conviction.subject, tuple(_convicted(subject, conviction)))


def _proven(subject: AuditSubject, event: FaultProven, before: State) -> Iterator[Finding]:
    """The evidence in the call convicts this party of this fault."""
    yield _party(event)
    if event.subject in before.proven:
        yield _wrong(event, "A subject convicted twice")
    if event.fault is Fault.BY_PROOF and disputes.is_won(subject, event):
        return  # M26 has played it
    call = call_behind(subject.evidence, event.meta, Part.EVIDENCE, *_FUNCTIONS)
    if isinstance(call, Unavailable):
        yield unavailable("M10", call, event.meta, event.subject)
    elif event.fault is Fault.BY_PROOF:
        yield from _weighed(subject, event, call, before)
    elif event.fault is not Fault.PROMISE_BROKEN:
        try:
            found = _evidence(subject, call, before)
        except ProtocolError as error:
            yield _wrong(event, f"What the call shows convicts nobody: {error}")
            return
        if found is not None and (found.fault, found.convict) != (event.fault, event.convict):
            yield _wrong(event, f"The call shows {found.fault.name} of {found.convict}")


def _weighed(subject: AuditSubject, event: FaultProven, call: DecodedCall, before: State) -> Iterator[Finding]:
    """The proof's arithmetic is done again, and convicts this party by this signature."""
    if not disputes.passes_tokens(subject):
        what = "The deployment's own prover convicted; its evidence is of its own kind"
        yield Finding("M10", FindingKind.INCONCLUSIVE, what, event.subject, party=event.convict, place=event.meta)
        return
    try:
        proof = token_proofs.decode(call.value("evidence"))
        scheduler = before.parties[proof.order.scheduler]
        found = token_proofs.judge(proof, subject.evidence.domain, scheduler.vrf_key)
    except (ProtocolError, KeyError) as error:
        yield _wrong(event, f"The proof convicts nobody: {error}")
        return
    if (found.party, token_proofs.subject_of(found)) != (event.convict, event.subject):
        yield _wrong(event, f"The proof is about another party or result, of {found.party}")


def _party(event: FaultProven) -> Finding:
    """A conviction is a finding, whoever brought it: this party was proven wrong."""
    what = f"{event.fault.name}: {event.taken} were taken"
    return Finding(
        "M10",
        FindingKind.CHEATED,
        what,
        event.subject,
        party=event.convict,
        role="convict",
        amount=event.taken,
        place=event.meta,
        action="none: Evidence has convicted",
    )


def _evidence(subject: AuditSubject, call: DecodedCall, before: State) -> Conviction | None:
    """The conviction that two words of one party make, or a word of a scheduler and its own proof."""
    domain, name = subject.evidence.domain, call.entry.name
    if name in _PAIRS:
        kind, rule = _PAIRS[name]
        return rule(_signed(call, "one", kind), _signed(call, "other", kind), domain)
    if name == "convictCommitment":
        before_rows, verdict = _signed(call, "before", TraceCommitment), _signed(call, "verdict", Verdict)
        return convictions.other_commitment(before_rows, verdict, domain)
    order = value(call, "order", SignedOrder)
    digest = messages.order_id(order.order, domain)
    if name == "date":
        return Conviction(Fault(call.value("fault")), call.value("node"), digest)
    if name in {"convictAdmissions", "convictDraws"}:
        word: type[Any] = Admission if name == "convictAdmissions" else Draw
        one, other = _signed(call, "one", word), _signed(call, "other", word)
        names = ("nodes",) if word is Admission else ("results", "beta")
        for signed in (one, other):
            signed.require(domain, order.scheduler)
        if one.message.order == other.message.order == digest and any(
            getattr(one.message, field) != getattr(other.message, field) for field in names
        ):
            fault = Fault.TWO_ADMISSIONS if word is Admission else Fault.TWO_DRAWS
            return Conviction(fault, order.scheduler, digest)
        return Conviction(Fault.NONE, order.scheduler, digest)
    return _own_proof(call, order, before, domain, digest)


def _own_proof(
    call: DecodedCall, order: SignedOrder, before: State, domain: typed_data.Domain, digest: Hash32
) -> Conviction | None:
    if call.entry.name == "convictBeta":
        draw = Signed(value(call, "draw", Draw), call.value("signature")).require(domain, order.scheduler)
        proof = value(call, "proof", VrfProof)
        beta = vrf.verify(before.parties[order.scheduler].vrf_key, messages.draw_alpha(digest), proof.proof)
        fault = Fault.WRONG_BETA if beta != draw.beta and draw.order == digest else Fault.NONE
        return Conviction(fault, order.scheduler, digest)
    if call.entry.name == "convictHeads":
        draw = Signed(value(call, "draw", Draw), call.value("signature")).require(domain, order.scheduler)
        results = value(call, "results", tuple[NodeResult, ...])
        apart = any(one.output_head != other.input_head for one, other in pairwise(results))
        named = draw.results == messages.results_hash(results) and draw.order == digest
        return Conviction(Fault.HEADS_APART if apart and named else Fault.NONE, order.scheduler, digest)
    admission = Signed(value(call, "admission", Admission), call.value("signature")).require(domain, order.scheduler)
    nodes = messages.nodes_hash(value(call, "nodes", tuple[Any, ...]))
    named = admission.order == digest and admission.nodes == nodes
    return None if named else Conviction(Fault.NONE, order.scheduler, digest)


def _signed(call: DecodedCall, name: str, kind: type[Any]) -> Signed[Any]:
    return Signed(value(call, name, kind), call.value(f"{name}Signature"))


def _convicted(subject: AuditSubject, event: Convicted) -> Iterator[Finding]:
    """A conviction has its cause in the same transaction, and voids what it must."""
    causes: tuple[type[Any], ...] = (FaultProven, SummonsUnanswered, NodeSilent)
    caused = any(subject.history.beside(event, kind) for kind in causes)
    decided = any(
        step.event.meta.transaction == event.meta.transaction and type(step.event).__name__ == "CaseDecided"
        for step in subject.history.steps
    )
    if not caused and not decided:
        yield _wrong(event, "A conviction has no cause in its transaction")
    # One that is dated voids until its conviction, and no further.
    if event.void_until > event.meta.block or event.void_from > event.void_until:
        yield _wrong(event, "A conviction voids other blocks than from the lag before the offence until now")


def _summonses(subject: AuditSubject) -> Iterator[CheckResult]:
    kinds = (Summoned, PassedOn, Responded, NodeSilent, SummonsAnswered, SummonsUnanswered)
    for event, before in subject.history.of(*kinds):
        yield CheckResult(event.summons_id, tuple(_summons(subject, event, before)))


def _summons(subject: AuditSubject, event: Any, before: State) -> Iterator[Finding]:
    parameters, block = subject.evidence.parameters, event.meta.block
    if isinstance(event, Summoned):
        if event.state.deadline != block + parameters.summons_window:
            yield _wrong(event, "A summons has another deadline than its window gives")
        yield from _called(subject, event)
        return
    record = before.summons[event.summons_id]
    if isinstance(event, SummonsUnanswered | NodeSilent):
        if block <= record.state.deadline:
            yield _wrong(event, "Somebody was made to pay while a summons could be answered")
        party = event.convicted if isinstance(event, SummonsUnanswered) else event.node
        what = f"A summons was not answered: {event.taken} were taken"
        yield Finding(
            "M11", FindingKind.CHEATED, what, event.summons_id, party=party, amount=event.taken, place=event.meta
        )
    elif isinstance(event, SummonsAnswered | Responded) and block > record.state.deadline:
        yield _wrong(event, "A summons was answered after its deadline")


def _called(subject: AuditSubject, event: Summoned) -> Iterator[Finding]:
    """The scheduler's own word, and for a check the client's secret, are what summons it."""
    call = call_behind(subject.evidence, event.meta, Part.SUMMONS, "summonResults", "summonCheck")
    if isinstance(call, Unavailable):
        yield unavailable("M11", call, event.meta, event.summons_id)
        return
    domain = subject.evidence.domain
    order = value(call, "order", SignedOrder)
    if event.state.kind is SummonsKind.RESULTS:
        word: Signed[Any] = Signed(value(call, "admission", Admission), call.value("signature"))
    else:
        word = Signed(value(call, "draw", Draw), call.value("drawSignature"))
        if keccak256(call.value("secret")) != order.order.draw_hash:
            yield _wrong(event, "The secret is not the one that the order committed to")
    if word.message.order != messages.order_id(order.order, domain) or word.message.order != event.order:
        yield _wrong(event, "The scheduler's word is about another order")
    if typed_data.recover(word.message, domain, word.signature) != event.scheduler:
        yield _wrong(event, "The summoned scheduler did not sign that word")


def _wrong(event: Any, message: str) -> Finding:
    subject = event.summons_id if hasattr(event, "summons_id") else event.subject
    number = "M11" if hasattr(event, "summons_id") else "M10"
    return Finding(number, FindingKind.MISMATCH, message, subject, place=event.meta)


CHECKS = (
    AuditCheck("M10", "Convictions and their evidence", _convictions),
    AuditCheck("M11", "Summonses and their answers", _summonses),
)
