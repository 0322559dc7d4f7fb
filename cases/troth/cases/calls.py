"""The contracts' calls around a case, in one place: what a case is opened and carried on with, convictions, summons.

Only this module knows how arguments are laid out; everything else works with the protocol's own types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from troth.cases.evidence import Evidence
from troth.protocol.errors import ProtocolError
from troth.protocol.market import calls, court, draws, messages, reveals
from troth.protocol.market.calls import PartCall, PartView
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseState, Fault, NodeReveal, Reveal, SummonsKind, SummonsState
from troth.protocol.market.signed import (
    Admission,
    Draw,
    Opinion,
    Order,
    Result,
    ReviewCommitment,
    Row,
    TraceCommitment,
    Verdict,
    VrfProof,
)
from troth.protocol.market.types import Ask, Contracts, DrawRequest, Rules, Tab
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.protocol.vrf import hints as vrf_hints

NO_PROOF = VrfProof(b"")


def proof_of(key: tuple[int, int], alpha: Hash32, proof: bytes) -> VrfProof:
    """A scheduler's proof with what EcVrf needs beside it; raises InvalidProof where it does not hold."""
    return VrfProof(proof, tuple(vrf_hints(key, alpha, proof)))


# ------------------------------------------------------------------------------------------------------------- a case


def open_case(
    contracts: Contracts,
    evidence: Evidence,
    segment: int,
    *,
    secret: Hash32 | None,
    verdicts: Sequence[Signed[Verdict]],
    proof: VrfProof,
    hints: bytes,
    suspend: bool,
    value: int,
) -> PartCall:
    """Court.open over one result; ``secret`` None: a doubt. ``value`` is the bond where the asset is the coin."""
    draw = evidence.draws[0]
    return calls.build(
        contracts,
        Part.COURT,
        "open",
        evidence.signed_order,
        [one.message for one in evidence.results],
        [one.signature for one in evidence.results],
        draw.message,
        draw.signature,
        segment,
        ZERO_HASH if secret is None else secret,
        [one.message for one in verdicts],
        [one.signature for one in verdicts],
        proof,
        hints,
        suspend,
        value=value,
    )


def draw_case(contracts: Contracts, state: CaseState, header: bytes, hints: bytes) -> PartCall:
    """Court.draw: the reviewers, by the header of the block that is due."""
    return calls.build(contracts, Part.COURT, "draw", court.case_of(state), state, header, hints)


def convene(  # noqa: PLR0917
    contracts: Contracts,
    state: CaseState,
    header: bytes,
    hints: bytes,
    reviewers: Sequence[Address],
    pledges: Mapping[Address, Signed[ReviewCommitment]],
) -> PartCall:
    """Court.convene: the reviewers, by the header of the block that is due, with what every one of them signed."""
    commitments = [pledges[one].message.commitment for one in reviewers]
    signatures = b"".join(pledges[one].signature for one in reviewers)
    arguments = (state, header, hints, commitments, signatures)
    return calls.build(contracts, Part.COURT, "convene", court.case_of(state), *arguments)


def post(contracts: Contracts, state: CaseState, commitment: Hash32) -> PartCall:
    """Court.post: a reviewer's own commitment."""
    return calls.build(contracts, Part.COURT, "post", court.case_of(state), state, commitment)


def commit(
    contracts: Contracts, state: CaseState, pledges: Mapping[Address, Signed[ReviewCommitment]], posted: set[Address]
) -> PartCall:
    """Court.commit: what was signed, in the order of the reviewers; what was posted counts without being given."""
    given = {reviewer: one for reviewer, one in pledges.items() if reviewer not in posted}
    commitments = [
        given[reviewer].message.commitment if reviewer in given else ZERO_HASH for reviewer in state.reviewers
    ]
    signatures = b"".join(given[reviewer].signature for reviewer in state.reviewers if reviewer in given)
    return calls.build(contracts, Part.COURT, "commit", court.case_of(state), state, commitments, signatures)


def seed(contracts: Contracts, state: CaseState, header: bytes) -> PartCall:
    """Court.seed: the tiles, by the header of the block that is due."""
    return calls.build(contracts, Part.COURT, "seed", court.case_of(state), state, header)


def reveal(contracts: Contracts, state: CaseState, place: int, shown: Reveal) -> PartCall:
    """Court.reveal: a reviewer's own showing, in the clear."""
    return calls.build(contracts, Part.COURT, "reveal", court.case_of(state), state, place, reveals.encode([shown]))


def reveal_node(contracts: Contracts, state: CaseState, shown: NodeReveal) -> PartCall:
    """Court.revealNode: the judged node's own showing."""
    return calls.build(contracts, Part.COURT, "revealNode", court.case_of(state), state, shown)


def decide(
    contracts: Contracts, state: CaseState, node: NodeReveal | None, shown: Mapping[Address, Reveal]
) -> PartCall:
    """Court.decide: everything that was shown, in the clear; it is packed and masked here."""
    own = node or NodeReveal()
    return calls.build(contracts, Part.COURT, "decide", court.case_of(state), state, own, _packed(state, own, shown))


def conclude(
    contracts: Contracts, state: CaseState, header: bytes, node: NodeReveal, shown: Mapping[Address, Reveal]
) -> PartCall:
    """Court.conclude: the tiles, by the header of the block that is due, and all that was shown of them."""
    packed = _packed(state, node, shown)
    return calls.build(contracts, Part.COURT, "conclude", court.case_of(state), state, header, node, packed)


def _packed(state: CaseState, node: NodeReveal, shown: Mapping[Address, Reveal]) -> bytes:
    return reveals.encode([shown.get(reviewer, Reveal()) for reviewer in state.reviewers], node.tiles)


def expire(contracts: Contracts, state: CaseState) -> PartCall:
    """Court.expire: a phase whose window is over."""
    return calls.build(contracts, Part.COURT, "expire", court.case_of(state), state)


def reviewers_request(state: CaseState, rules: Rules, randao: Hash32) -> DrawRequest:
    """The draw of a round's reviewers, from what the chain says of the case alone."""
    span = messages.layers_of(state.ends, state.segment)
    return DrawRequest(
        execution_class=state.execution_class,
        first=span.first,
        end=span.end,
        block_number=state.reference_block,
        seed=messages.court_seed(court.case_of(state), state.round, randao),
        count=rules.reviewers,
        seasoned=True,
        distinct=False,
        excluded=state.excluded,
        bound=Ask(),
    )


def verifiers_request(
    order: Order, rules: Rules, segment: int, chance: Hash32, excluded: Sequence[Address]
) -> DrawRequest:
    """The draw of a segment's verifiers under the seed of its check."""
    span = messages.layers_of(order.ends, segment)
    return draws.verifiers_request(order, rules, span, messages.segment_seed(chance, segment), excluded)


def shown_reveal(data: bytes, state: CaseState, rules: Rules) -> Reveal | NodeReveal | None:
    """What a call of Court.reveal or Court.revealNode showed, read back from its calldata; None if it is none."""
    try:
        call = calls.read_call(Part.COURT, data)
        if call.entry.name == "reveal":
            packed = calls.argument(call, "reveal_", bytes)
            return reveals.decode(packed, 1, reveals.Sample.of(rules, state.rows))[0]
        if call.entry.name == "revealNode":
            return calls.argument(call, "reveal_", NodeReveal)
    except (ProtocolError, ValueError):
        return None
    return None


def is_told(shown: Reveal) -> bool:
    """Whether a reveal stands on a trace, so that its tiles are opened."""
    return shown.opinion in {Opinion.ACCEPT, Opinion.REJECT}


# --------------------------------------------------------------------------------------------------------- convictions


def convict_results(contracts: Contracts, one: Signed[Result], other: Signed[Result]) -> PartCall:
    """Two results of one node."""
    return _twice(contracts, "convictResults", one, other)


def convict_rows(contracts: Contracts, one: Signed[Row], other: Signed[Row]) -> PartCall:
    """Two rows of one node."""
    return _twice(contracts, "convictRows", one, other)


def convict_verdicts(contracts: Contracts, one: Signed[Verdict], other: Signed[Verdict]) -> PartCall:
    """Two verdicts of one verifier."""
    return _twice(contracts, "convictVerdicts", one, other)


def convict_commitment(contracts: Contracts, before: Signed[TraceCommitment], said: Signed[Verdict]) -> PartCall:
    """A verdict over another trace than its verifier had committed to."""
    return _twice(contracts, "convictCommitment", before, said)


def convict_admissions(
    contracts: Contracts, evidence: Evidence, one: Signed[Admission], other: Signed[Admission]
) -> PartCall:
    """Two admissions of one order."""
    return _of_order(contracts, "convictAdmissions", evidence, one, other)


def convict_draws(contracts: Contracts, evidence: Evidence, one: Signed[Draw], other: Signed[Draw]) -> PartCall:
    """Two draws over one order."""
    return _of_order(contracts, "convictDraws", evidence, one, other)


def convict_nodes(
    contracts: Contracts,
    evidence: Evidence,
    admission: Signed[Admission],
    *,
    segment: int,
    proof: VrfProof,
    hints: bytes,
) -> PartCall:
    """An admission of a node that was not drawn."""
    arguments = (admission.message, admission.signature, list(evidence.nodes), segment, proof, hints)
    return calls.build(contracts, Part.EVIDENCE, "convictNodes", evidence.signed_order, *arguments)


def convict_beta(contracts: Contracts, evidence: Evidence, draw: Signed[Draw], proof: VrfProof) -> PartCall:
    """A draw with another output than the VRF's."""
    arguments = (evidence.signed_order, draw.message, draw.signature, proof)
    return calls.build(contracts, Part.EVIDENCE, "convictBeta", *arguments)


def convict_heads(contracts: Contracts, evidence: Evidence, draw: Signed[Draw], results: Sequence[Result]) -> PartCall:
    """A draw over results that do not meet."""
    arguments = (evidence.signed_order, draw.message, draw.signature, list(results))
    return calls.build(contracts, Part.EVIDENCE, "convictHeads", *arguments)


def date(contracts: Contracts, evidence: Evidence, fault: Fault, node: Address, segment: int) -> PartCall:
    """The order of a node's conviction by two words: an old one voids leaves from its own lag on."""
    return calls.build(contracts, Part.EVIDENCE, "date", fault, node, segment, evidence.signed_order)


def convict_payer(contracts: Contracts, tab: Tab) -> PartCall:
    """A tab that did not cover a settled claim."""
    return calls.build(contracts, Part.EVIDENCE, "convictPayer", tab)


def convict_by_proof(contracts: Contracts, proof: bytes) -> PartCall:
    """What a node computed, weighed again on chain."""
    return calls.build(contracts, Part.EVIDENCE, "convictByProof", proof)


def _twice(contracts: Contracts, function: str, one: Signed[Any], other: Signed[Any]) -> PartCall:
    arguments = (one.message, one.signature, other.message, other.signature)
    return calls.build(contracts, Part.EVIDENCE, function, *arguments)


def _of_order(
    contracts: Contracts, function: str, evidence: Evidence, one: Signed[Any], other: Signed[Any]
) -> PartCall:
    arguments = (one.message, one.signature, other.message, other.signature)
    return calls.build(contracts, Part.EVIDENCE, function, evidence.signed_order, *arguments)


# -------------------------------------------------------------------------------------------------------------- summons


def summon_results(contracts: Contracts, evidence: Evidence, admission: Signed[Admission], value: int) -> PartCall:
    """Summons.summonResults: an admitted order has no results."""
    arguments = (evidence.signed_order, admission.message, admission.signature)
    return calls.build(contracts, Part.SUMMONS, "summonResults", *arguments, value=value)


def summon_check(contracts: Contracts, evidence: Evidence, segment: int, secret: Hash32, value: int) -> PartCall:
    """Summons.summonCheck: a drawn segment has no verdicts."""
    draw = evidence.draws[0]
    arguments = (evidence.signed_order, draw.message, draw.signature, segment, secret)
    return calls.build(contracts, Part.SUMMONS, "summonCheck", *arguments, value=value)


def convict_silence(contracts: Contracts, summons: Hash32, state: SummonsState) -> PartCall:
    """Summons.convict: who was to answer, and did not."""
    return calls.build(contracts, Part.SUMMONS, "convict", summons, state)


def summons_deposit(contracts: Contracts, kind: SummonsKind, base_fee: int) -> PartView[int]:
    """Read of the least deposit of a summons at a base fee."""
    return calls.view(contracts, Part.SUMMONS, "depositFor", kind, base_fee, returns=int)
