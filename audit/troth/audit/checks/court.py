"""M6 to M9: what a case was opened with, who was drawn, what was committed, what follows from what was shown.

Signatures, draws and reveals are taken from the calls' inputs; groups, stakes and keys from the folded state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from troth.audit.evidence.inputs import Unavailable, call_behind, value
from troth.audit.report import CheckResult, Finding, FindingKind
from troth.audit.subject import AuditCheck, AuditSubject, differing, shown, unavailable
from troth.protocol import typed_data, vrf
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import InvalidProof, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market import court, court_money, draws, lottery, messages, prices, reveals
from troth.protocol.market.events import (
    CaseDecided,
    CaseOpened,
    CaseRestarted,
    CaseSeeded,
    ReviewersDrawn,
    ReviewPosted,
    ReviewsCommitted,
)
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind, CaseState, NodeReveal, Outcome, Reveal
from troth.protocol.market.signed import Draw, Opinion, ReviewCommitment, SignedOrder, Verdict, VrfProof
from troth.protocol.market.signed import Result as NodeResult
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS, Ask, DrawRequest, PotKind, Rules, Tab
from troth.protocol.market.views import rules_in
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment


@dataclass(frozen=True, slots=True)
class CaseOpening:
    """The call that opened a case."""

    order: SignedOrder
    results: tuple[NodeResult, ...]
    result_signatures: tuple[bytes, ...]
    draw: Draw
    draw_signature: bytes
    segment: int
    secret: Hash32
    verdicts: tuple[Verdict, ...]
    verdict_signatures: tuple[bytes, ...]
    proof: VrfProof


def _opened(subject: AuditSubject) -> Iterator[CheckResult]:
    for event, before in subject.history.of(CaseOpened):
        call = call_behind(subject.evidence, event.meta, Part.COURT, "open")
        if isinstance(call, Unavailable):
            yield CheckResult(event.case_id, (unavailable("M6", call, event.meta, event.case_id),))
            continue
        yield CheckResult(event.case_id, tuple(_opening(subject, event, before, _read_opening(call))))


def _read_opening(call: DecodedCall) -> CaseOpening:
    return CaseOpening(
        order=value(call, "order", SignedOrder),
        results=value(call, "results", tuple[NodeResult, ...]),
        result_signatures=tuple(call.value("resultSignatures")),
        draw=value(call, "draw", Draw),
        draw_signature=call.value("drawSignature"),
        segment=int(call.value("segment")),
        secret=Hash32(call.value("secret")),
        verdicts=value(call, "verdicts", tuple[Verdict, ...]),
        verdict_signatures=tuple(call.value("verdictSignatures")),
        proof=value(call, "proof", VrfProof),
    )


def _opening(subject: AuditSubject, event: CaseOpened, before: State, opening: CaseOpening) -> Iterator[Finding]:
    """(1) The order's key, (2) the nodes and (3) the scheduler signed; (4) the case says what they signed."""
    domain, state = subject.evidence.domain, event.state
    order = opening.order.order
    digest = messages.order_id(order, domain)
    if not messages.signed_by_account(opening.order.key, digest, opening.order.signature):
        what = "The tab's key did not sign the order as an account; a contract that is a key was asked on chain"
        yield Finding("M6", FindingKind.INCONCLUSIVE, what, event.case_id, party=opening.order.key, place=event.meta)
    tab = messages.tab_id(Tab(opening.order.client, opening.order.scheduler, opening.order.key))
    if not before.tab_state(tab).known:
        yield _wrong("M6", event, "Nobody opened the tab that the order is of")
    nodes = [
        _signer(result, domain, signature)
        for result, signature in zip(opening.results, opening.result_signatures, strict=False)
    ]
    judged = opening.results[opening.segment]
    rules = rules_in(before, order.execution_class)
    pairs = (
        ("order", event.order, digest),
        ("results of the draw", opening.draw.results, messages.results_hash(opening.results)),
        ("scheduler's signature", opening.order.scheduler, _signer(opening.draw, domain, opening.draw_signature)),
        ("node", event.node, nodes[opening.segment]),
        ("state's node", state.node, event.node),
        ("result", state.result, typed_data.struct_hash(judged)),
        ("trace commitment", state.trace_commitment, judged.trace_commitment),
        ("rows", state.rows, prices.positions(judged) - 1),
        ("class", state.execution_class, order.execution_class),
        ("ends", state.ends, order.ends),
        ("reference block", state.reference_block, order.reference_block),
        ("answered at", state.answered_at, opening.draw.block_number),
        ("client", state.client, opening.order.client),
        ("scheduler", state.scheduler, opening.order.scheduler),
        ("fee", state.fee, prices.fee(order, rules, len(opening.results), opening.results[-1])),
        ("unit", state.unit, prices.unit(rules, prices.positions(judged))),
        ("phase block", state.phase_block, event.meta.block),
        ("locked", state.locked, _locked(before, state, rules)),
    )
    yield from _differences("M6", pairs, event.case_id, event.meta)
    yield from _kind(subject, event, before, opening, rules)


def _locked(before: State, state: CaseState, rules: Rules) -> int:
    """L of the node, or what there is of it; nothing for a doubt, which takes nothing."""
    return 0 if state.kind is CaseKind.DOUBT else min(rules.penalty, before.pot(PotKind.STAKE, state.node))


def _kind(
    subject: AuditSubject, event: CaseOpened, before: State, opening: CaseOpening, rules: Rules
) -> Iterator[Finding]:
    """A check's majority makes the kind of case, where the client's secret hit; without secret and check it doubts."""
    state, order = event.state, opening.order.order
    doubts = not any(opening.secret) and not opening.verdicts
    if doubts is not (state.kind is CaseKind.DOUBT):
        yield _wrong("M6", event, "A case is a doubt where neither a secret nor a verdict is shown, and only there")
    if doubts:
        return
    if keccak256(opening.secret) != order.draw_hash or not lottery.hits(
        opening.secret, opening.draw.beta, order.check_rate
    ):
        yield _wrong("M6", event, "The leaf was not drawn by this secret, so no check of it counts")
    key = before.parties[state.scheduler].vrf_key
    try:
        beta = Hash32(vrf.verify(key, messages.draw_alpha(event.order), opening.proof.proof))
    except InvalidProof as error:
        yield _wrong("M6", event, f"The proof of the lottery does not hold: {error}")
        return
    if beta != opening.draw.beta:
        yield _wrong("M6", event, "Beta is not the output of the scheduler's proof")
    signers = (_signer(result, subject.evidence.domain, signature) for result, signature in _signed_results(opening))
    owners = {before.owner_of(signer) for signer in signers if signer is not None}
    owners |= _silent_owners(subject, before, event, opening)
    chance = messages.check_seed(event.order, opening.secret, beta, opening.draw.results)
    seed = messages.segment_seed(chance, opening.segment)
    drawn = _draw(subject, before, state, seed=seed, count=rules.verifiers, excluded=owners)
    said = {
        _signer(verdict, subject.evidence.domain, signature): verdict.opinion
        for verdict, signature in zip(opening.verdicts, opening.verdict_signatures, strict=False)
        if verdict.result == state.result
    }
    opinions = bytes(said.get(seat, int(Opinion.NONE)) for seat in drawn)
    rejected = 2 * opinions.count(int(Opinion.REJECT)) > len(drawn)
    yield from _differences(
        "M6",
        (("verifiers", state.verifiers, drawn), ("opinions", state.opinions, opinions)),
        event.case_id,
        event.meta,
    )
    if rejected is not (state.kind is CaseKind.REJECTION):
        whose = "A" if rejected else "No"
        yield _wrong("M6", event, f"{whose} majority of the drawn seats rejects, and the case is a {state.kind.name}")


def _silent_owners(subject: AuditSubject, before: State, event: CaseOpened, opening: CaseOpening) -> set[Address]:
    """Who was passed over in the check for its silence, and shows no verdict of its own: a complete check stands."""
    signed = zip(opening.verdicts, opening.verdict_signatures, strict=False)
    signers = (_signer(verdict, subject.evidence.domain, signature) for verdict, signature in signed)
    spoke = {before.owner_of(signer) for signer in signers if signer is not None}
    return {before.owner_of(node) for node in before.silent_in_check(event.order, opening.segment)} - spoke


def _signed_results(opening: CaseOpening) -> Iterator[tuple[NodeResult, bytes]]:
    yield from zip(opening.results, opening.result_signatures, strict=False)


# --------------------------------------------------------------------------------------------------------- randomness


def _randomness(subject: AuditSubject) -> Iterator[CheckResult]:
    for event, before in subject.history.of(ReviewersDrawn, CaseSeeded):
        was = before.cases[event.case_id].state
        header = subject.evidence.headers.get(was.phase_block + subject.evidence.parameters.lookahead)
        if header is None:
            what = "The header whose RANDAO draws is not there"
            yield CheckResult(
                event.case_id, (Finding("M7", FindingKind.INCOMPLETE, what, event.case_id, place=event.meta),)
            )
        elif isinstance(event, ReviewersDrawn):
            yield CheckResult(event.case_id, tuple(_reviewers(subject, event, before, was, header.randao)))
        else:
            seed = messages.tiles_seed(event.case_id, was.commitments, header.randao)
            pairs = (("seed", event.seed, seed),)
            yield CheckResult(event.case_id, tuple(_differences("M7", pairs, event.case_id, event.meta)))


def _reviewers(
    subject: AuditSubject, event: ReviewersDrawn, before: State, was: CaseState, randao: Hash32
) -> Iterator[Finding]:
    rules = rules_in(before, was.execution_class)
    seed = messages.court_seed(event.case_id, was.round, randao)
    drawn = Counter(_draw(subject, before, was, seed=seed, count=rules.reviewers, excluded=was.excluded))
    pairs = (
        ("randao", event.randao, randao),
        ("reviewers", event.reviewers, tuple(drawn)),
        ("seats", event.seats, bytes(drawn.values())),
    )
    yield from _differences("M7", pairs, event.case_id, event.meta)
    block, parameters = event.meta.block, subject.evidence.parameters
    if not was.phase_block + parameters.lookahead < block <= court.expires_after(was, parameters, rules.exact):
        yield _wrong("M7", event, "The reviewers were drawn outside the window")


def _draw(
    subject: AuditSubject, before: State, state: CaseState, *, seed: Hash32, count: int, excluded: Iterable[Address]
) -> tuple[Address, ...]:
    """Seasoned seats of a case's segment, as the contract draws them."""
    rules = rules_in(before, state.execution_class)
    span = _span(state, rules)
    request = DrawRequest(
        execution_class=state.execution_class,
        first=span.first,
        end=span.end,
        block_number=state.reference_block,
        seed=seed,
        count=count,
        seasoned=True,
        distinct=False,
        excluded=tuple(excluded),
        bound=Ask(),
    )
    group = before.group(group_id(state.execution_class, span))
    seasoning = subject.evidence.parameters.seasoning
    return draws.draw(request, group, seat_cap=rules.seat_cap, seasoning=seasoning).operators


def _span(state: CaseState, rules: Rules) -> Segment:
    ends = state.ends.rstrip(b"\0")
    return Segment(ends[state.segment - 1] if state.segment else 0, ends[state.segment] if ends else rules.layers)


# -------------------------------------------------------------------------------------------------------- commitments


def _commitments(subject: AuditSubject) -> Iterator[CheckResult]:
    for event, before in subject.history.of(ReviewPosted, ReviewsCommitted):
        record = before.cases[event.case_id]
        if isinstance(event, ReviewPosted):
            known = event.reviewer in record.state.reviewers
            late = event.meta.block > record.state.phase_block + subject.evidence.parameters.commit_window
            replaced = (event.round, event.reviewer) in record.posts
            wrong = [(not known, "who was not drawn"), (late, "after the window"), (replaced, "for the second time")]
            found = [_wrong("M8", event, f"A commitment was posted {how}") for bad, how in wrong if bad]
            yield CheckResult(event.case_id, tuple(found))
        else:
            yield CheckResult(event.case_id, tuple(_committed(subject, event, before)))


def _committed(subject: AuditSubject, event: ReviewsCommitted, before: State) -> Iterator[Finding]:
    """Each commitment is its reviewer's own post, or signed by it; an incomplete set came late enough."""
    record = before.cases[event.case_id]
    state, parameters = record.state, subject.evidence.parameters
    committed = [one != ZERO_HASH for one in event.commitments]
    if not court.may_end_commitments(state, committed, event.meta.block, parameters):
        yield _wrong("M8", event, "The commitments were ended outside the window, or an incomplete set too early")
    call = call_behind(subject.evidence, event.meta, Part.COURT, "commit", "convene")
    if isinstance(call, Unavailable):
        yield unavailable("M8", call, event.meta, event.case_id)
        return
    signatures = [call.value("signatures")[at : at + 65] for at in range(0, len(call.value("signatures")), 65)]
    for reviewer, commitment in zip(state.reviewers, event.commitments, strict=False):
        posted = record.posts.get((state.round, reviewer))
        if posted is not None and posted != commitment:
            yield _wrong("M8", event, f"The post of {reviewer} was replaced", party=reviewer)
        elif posted is None and commitment != ZERO_HASH:
            message = ReviewCommitment(messages.hearing_id(event.case_id, state.round), commitment)
            if not any(_signer(message, subject.evidence.domain, one) == reviewer for one in signatures):
                yield _wrong("M8", event, f"{reviewer} neither posted nor signed its commitment", party=reviewer)


# ------------------------------------------------------------------------------------------------------------ outcome


def _outcomes(subject: AuditSubject) -> Iterator[CheckResult]:
    for event, before in subject.history.of(CaseDecided, CaseRestarted):
        if isinstance(event, CaseDecided) and event.outcome is Outcome.LAPSED:
            continue
        state = before.cases[event.case_id].state
        call = call_behind(subject.evidence, event.meta, Part.COURT, "decide", "conclude", "expire")
        if isinstance(call, Unavailable):
            yield CheckResult(event.case_id, (unavailable("M9", call, event.meta, event.case_id),))
        elif call.entry.name != "expire":
            yield CheckResult(event.case_id, tuple(_decided(subject, event, state, call)))


def _decided(
    subject: AuditSubject, event: CaseDecided | CaseRestarted, state: CaseState, call: DecodedCall
) -> Iterator[Finding]:
    """What follows from what was shown, and what it moves."""
    before = subject.history.before(event.meta.transaction)
    rules = rules_in(before, state.execution_class)
    node, packed = value(call, "node", NodeReveal), value(call, "reveals", bytes)
    sample = reveals.Sample.of(rules, state.rows)
    revealed = reveals.decode(packed, len(state.reviewers), sample, node.tiles)
    yield from _openings(event, state, node, revealed)
    own = court.Showing(node.root, node.tiles) if node.root != ZERO_HASH else None
    showings = tuple(_showing(reveal) for reveal in revealed)
    judged = court.judge(court.Hearing(state.kind, state.seats, showings, own), rules)
    if isinstance(event, CaseRestarted):
        if judged.outcome is not Outcome.NONE:
            yield _wrong("M9", event, f"The reveals decide {judged.outcome.name}, and the case was drawn anew")
        return
    final = Outcome.UNDECIDED if judged.outcome is Outcome.NONE else judged.outcome
    pairs = (
        ("outcome", event.outcome.name, final.name),
        ("cluster", event.cluster, sum(1 << index for index in judged.cluster)),
        ("score", event.score, judged.score),
        ("spread", event.spread, judged.spread),
    )
    yield from _differences("M9", pairs, event.case_id, event.meta)
    yield from _paid(subject, event, state, replace(judged, outcome=final), before)


def _openings(
    event: CaseDecided | CaseRestarted, state: CaseState, node: NodeReveal, revealed: tuple[Reveal, ...]
) -> Iterator[Finding]:
    """Each reveal is of what its maker committed to."""
    if node.root != ZERO_HASH and messages.trace_commitment(node.root, node.salt) != state.trace_commitment:
        yield _wrong("M9", event, "The node's reveal is not of the trace that it signed", party=state.node)
    hearing = messages.hearing_id(event.case_id, state.round)
    for reviewer, commitment, reveal in zip(state.reviewers, state.commitments, revealed, strict=False):
        if reveal.opinion == Opinion.NONE:
            continue
        expected = messages.review_commitment(
            hearing,
            reviewer,
            root=reveal.root,
            opinion=Opinion(reveal.opinion),
            score=reveal.score,
            spread=reveal.spread,
            salt=reveal.salt,
        )
        if commitment != expected:
            yield _wrong("M9", event, f"The reveal of {reviewer} is not of its commitment", party=reviewer)


def _showing(reveal: Reveal) -> court.Showing | None:
    if reveal.opinion == Opinion.NONE:
        return None
    return court.Showing(reveal.root, reveal.tiles, Opinion(reveal.opinion), reveal.score, reveal.spread)


def _paid(
    subject: AuditSubject, event: CaseDecided, state: CaseState, judged: court.CaseFinding, before: State
) -> Iterator[Finding]:
    """Fines, locks and slashes to the unit; of the bond, that the client came first and that nothing is left."""
    rules = rules_in(before, state.execution_class)
    moved = subject.history.moved(event.meta.transaction, event.case_id)
    bond = (PotKind.BOND, event.case_id)
    drawn_up = court_money.settle(state, judged, rules, _circumstances(event, state, before))
    # What is paid out of the bond depends on the price of gas, which the logs do not show.
    expected = [one for one in drawn_up if (one.from_kind, one.from_id) != bond]
    actual = [one for one in moved if (one.from_kind, one.from_id) != bond]
    if Counter(actual) != Counter(expected):
        both = (("recorded", shown(str(actual))), ("recomputed", shown(str(expected))))
        what = "Fines, locks and slashes are not those that the outcome brings"
        yield Finding("M9", FindingKind.MISMATCH, what, event.case_id, place=event.meta, evidence=both)
    came: Counter[tuple[PotKind, Hash32]] = Counter()
    for one in moved:
        came[one.to_kind, one.to_id] += one.amount
    left = before.pot(*bond) + came[bond] - sum(one.amount for one in moved if (one.from_kind, one.from_id) == bond)
    if left:
        yield _wrong("M9", event, f"{left} of the bond is left in a case that is over")
    client = court_money.pot_of(PotKind.CREDIT, state.client)
    owed = next((one.amount for one in drawn_up if (one.to_kind, one.to_id) == client), 0)
    if event.outcome in court_money.CONVICTING and came[client] < owed:
        yield _wrong("M9", event, f"The client got {came[client]} of the {owed} that come first")


def _circumstances(event: CaseDecided, state: CaseState, before: State) -> court_money.Circumstances:
    """The pots before the case ended, and what was counted against the node's owner."""
    node = before.parties.get(state.node)
    counted = None if node is None else before.pools.get((node.owner, state.execution_class))
    return court_money.Circumstances(
        balances=dict(before.pots.items()),
        gas_price=0,
        decider=NO_ADDRESS,
        pool=counted or court_money.OutcomePool(),
        block=event.meta.block,
        voided=before.is_voided(state.order, state.segment),
    )


# ------------------------------------------------------------------------------------------------------------- common


def _signer(message: Any, domain: typed_data.Domain, signature: bytes) -> Address | None:
    try:
        return typed_data.recover(message, domain, signature)
    except InvalidSignature:
        return None


def _differences(
    number: str, pairs: tuple[tuple[str, object, object], ...], subject: Hash32, place: LogMeta
) -> Iterator[Finding]:
    for name, recorded, expected in differing(pairs):
        both: Mapping[str, str] = {"recorded": recorded, "recomputed": expected}
        what = f"The chain's record of the {name} is not what the evidence gives"
        yield Finding(number, FindingKind.MISMATCH, what, subject, place=place, evidence=tuple(both.items()))


def _wrong(number: str, event: Any, message: str, party: Address | None = None) -> Finding:
    return Finding(number, FindingKind.MISMATCH, message, event.case_id, party=party, place=event.meta)


CHECKS = (
    AuditCheck("M6", "What cases were opened with", _opened),
    AuditCheck("M7", "Reviewers and tiles by RANDAO", _randomness),
    AuditCheck("M8", "Commitments of reviewers", _commitments),
    AuditCheck("M9", "Outcomes and what they move", _outcomes),
)
