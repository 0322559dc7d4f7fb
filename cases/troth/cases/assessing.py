"""What can be done with a piece of evidence now: convict, bring a result to the court, or summon what is owed.

Pure: from the evidence and the folded chain. Every option says in words what it needs, what it costs, until when it
can be taken, and what it leads to, so that a person decides before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from troth.cases import calls
from troth.cases.convicting import Proof, proofs_in
from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import Evidence
from troth.cases.standing import definition_of, require_order, signer_of, view_of
from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidProof, ProtocolError
from troth.protocol.market import checks, court, court_money, draws, economy, lottery, messages
from troth.protocol.market.checks import OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.economy import ONE
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.proceedings import CaseKind, Outcome, SummonsKind
from troth.protocol.market.signed import Opinion, Result, Verdict
from troth.protocol.market.state import State
from troth.protocol.market.types import DrawRequest, Parameters
from troth.protocol.market.views import parameters_of
from troth.protocol.types import ZERO_HASH, Address, Hash32

REOPENED = frozenset({Outcome.OPENER_MISSING, Outcome.LAPSED})
"""Outcomes after which a leaf is open to another case."""
_SAID = frozenset({Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL})


@dataclass(frozen=True, slots=True)
class Bring:
    """A case over one result. ``openers`` empty: anyone; ``lacks``: what reviewers would vote missing of the opener."""

    segment: int
    kind: CaseKind
    node: Address
    bond: int
    last_block: int
    may_suspend: bool
    chance: int
    penalty: int
    openers: tuple[Address, ...]
    verdicts: tuple[Signed[Verdict], ...]
    seat_request: DrawRequest | None = None
    lacks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """One paragraph."""
        who = "anyone" if not self.openers else f"its client or tab key ({' or '.join(self.openers)})"
        parts = [f"Bring segment {self.segment} of {self.node} to the court as a {self.kind.name.lower()}: {who} may,"]
        parts.append(f"until block {self.last_block}, with a bond of {self.bond}.")
        parts.append(f"If all honest reviewers agree, the chance is {100 * self.chance / ONE:.1f} %;")
        if self.kind is CaseKind.DOUBT:
            parts.append("then the answer is not paid, and nobody is slashed.")
        else:
            parts.append(f"then the node loses up to {self.penalty}, and the opener gets its bond, gas and a tenth.")
        parts.append("If they uphold the result, the bond is lost.")
        if self.lacks:
            parts.append(f"The evidence lacks {', '.join(self.lacks)}: reviewers would vote it missing, and the bond")
            parts.append("would be lost.")
        return " ".join((*parts, *self.warnings))


@dataclass(frozen=True, slots=True)
class Summon:
    """A scheduler is asked on chain for what it owes. The deposit is read when it is sent."""

    kind: SummonsKind
    segment: int
    scheduler: Address
    first_block: int
    last_block: int

    @property
    def words(self) -> str:
        """One paragraph."""
        owed = "the results" if self.kind is SummonsKind.RESULTS else f"the check of segment {self.segment}"
        return (
            f"Summon {self.scheduler} for {owed}: anyone may, from block {self.first_block} to {self.last_block}, with "
            "a deposit that pays the answer's gas. Silence convicts it, and returns the deposit with a reward."
        )


@dataclass(frozen=True, slots=True)
class Assessment:
    """Everything that can be done, the surest first; ``against`` says why other things cannot be."""

    convictions: tuple[Proof, ...] = ()
    cases: tuple[Bring, ...] = ()
    summons: tuple[Summon, ...] = ()
    against: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing can be done."""
        return not (self.convictions or self.cases or self.summons)

    @property
    def words(self) -> tuple[str, ...]:
        """A paragraph for each option, or why there is none."""
        convicting = tuple(
            f"Convict: {one.words}. Anyone may, at once, without a bond; a tenth of what is taken is the reward."
            for one in self.convictions
        )
        return (*convicting, *(one.words for one in self.cases), *(one.words for one in self.summons), *self.against)


@dataclass(slots=True)
class _Reading:
    """One assessment under way. ``block`` is the one in which a call would be mined."""

    evidence: Evidence
    state: State
    view: OrderView
    block: int
    against: list[str] = field(default_factory=list)

    @property
    def parameters(self) -> Parameters:
        return parameters_of(self.state)

    @property
    def digest(self) -> Hash32:
        return self.evidence.order_id


def assess(evidence: Evidence, state: State, block: int, key_check: KeyCheck = signed_by_account) -> Assessment:
    """What can be done with the evidence in the next block; EvidenceRefused where it is none of this deployment."""
    deployed = state.deployed
    if deployed is None or deployed.contracts.bank != evidence.bank:
        raise EvidenceRefused("The evidence is of another deployment", evidence.bank, "Name its factory and chain.")
    if evidence.order is None or evidence.tab is None:
        return Assessment(convictions=proofs_in(evidence, state, None))
    view = view_of(evidence, state, block, key_check)
    require_order(evidence, view)
    reading = _Reading(evidence, state, view, block + 1)
    cases, summons = tuple(_cases(reading)), tuple(_summons(reading))
    return Assessment(proofs_in(evidence, state, view), cases, summons, tuple(reading.against))


# --------------------------------------------------------------------------------------------------------------- cases


def _cases(reading: _Reading) -> Iterator[Bring]:
    evidence, view = reading.evidence, reading.view
    results = [one.message for one in evidence.results]
    if len(results) != len(view.groups) or not evidence.draws:
        reading.against.append("A case needs the results of all segments and the scheduler's draw over them.")
        return
    draw = evidence.draws[0]
    if draw.message.order != reading.digest or draw.message.results != messages.results_hash(results):
        reading.against.append("The draw is over other results than these: no case can be opened with it.")
        return
    if signer_of(draw, evidence) != view.tab.payee:
        reading.against.append("The scheduler of the tab did not sign the draw.")
        return
    reference = evidence.signed_order.order.reference_block
    if not reference <= draw.message.block_number <= reference + court.answer_age(reading.parameters):
        reading.against.append("The draw names a block that no answer to this order can be of.")
        return
    nodes = [signer_of(one, evidence) for one in evidence.results]
    for segment, (result, node) in enumerate(zip(results, nodes, strict=True)):
        if node is None or (result.order, result.segment) != (reading.digest, segment):
            reading.against.append(f"The result of segment {segment} is not of this order, or not signed.")
            return
    parties = [node for node in nodes if node is not None]
    for segment, node in enumerate(parties):
        found = _case(reading, segment, node, results, parties)
        if found is not None:
            yield found


def _case(
    reading: _Reading, segment: int, node: Address, results: Sequence[Result], nodes: Sequence[Address]
) -> Bring | None:
    evidence, view = reading.evidence, reading.view
    verdicts, majority, request = _checked(reading, segment, results, nodes)
    kind = court.kind_of(majority)
    last = _last_block(reading, segment, kind)
    if last is None or reading.block > last:
        return None
    parameters, definition = reading.parameters, definition_of(reading.state, view.execution_class)
    rejecting = [one for one in verdicts if one.message.opinion == Opinion.REJECT]
    return Bring(
        segment=segment,
        kind=kind,
        node=node,
        bond=court_money.bond_of(view.rules, checks.rows_of(results[segment], view.rules), parameters.gas_price),
        last_block=last,
        may_suspend=kind is CaseKind.REJECTION and all(one.message.locks for one in rejecting),
        chance=economy.conviction(definition.honest_share, view.rules.reviewers),
        penalty=view.rules.penalty,
        openers=() if kind is CaseKind.REJECTION else (view.tab.payer, view.tab.key),
        verdicts=() if kind is CaseKind.DOUBT else verdicts,
        seat_request=request,
        lacks=_lacking(evidence),
        warnings=_warnings(reading, segment),
    )


def _checked(
    reading: _Reading, segment: int, results: Sequence[Result], nodes: Sequence[Address]
) -> tuple[tuple[Signed[Verdict], ...], Opinion | None, DrawRequest | None]:
    """The verdicts of drawn verifiers, one of each, what their majority says (None: not drawn), and their draw."""
    evidence, view = reading.evidence, reading.view
    order, draw = evidence.signed_order.order, evidence.draws[0].message
    try:
        if evidence.secret is None or not lottery.is_drawn(order, evidence.secret, draw.beta):
            return (), None, None
        if vrf.verify(view.vrf_key, messages.draw_alpha(reading.digest), evidence.draw_proof) != draw.beta:
            raise InvalidProof("Beta is not that of the VRF", draw.beta, "Convict its scheduler.")
        silent = {segment: reading.state.silent_in_check(reading.digest, segment)}
        drawn = checks.verifiers(order, results, evidence.secret, draw.beta, nodes=nodes, view=view, silent=silent)[
            segment
        ]
    except ProtocolError as error:
        reading.against.append(f"Segment {segment} counts as not drawn: {error.what}.")
        return (), None, None
    verdicts = _verdicts(reading, results[segment], drawn)
    opinions = {node: Opinion(one.message.opinion) for node, one in verdicts.items()}
    chance = messages.check_seed(reading.digest, evidence.secret, draw.beta, draw.results)
    excluded = dict.fromkeys(
        view.groups[place].owners[node] for place, node in enumerate(nodes) if node in view.groups[place].owners
    )
    for node in silent[segment]:
        excluded[reading.state.owner_of(node)] = None
    request = calls.verifiers_request(order, view.rules, segment, chance, tuple(excluded))
    return tuple(verdicts.values()), checks.majority(drawn, opinions), request


def _verdicts(reading: _Reading, result: Result, drawn: DrawnSeats) -> dict[Address, Signed[Verdict]]:
    """One verdict of each drawn verifier over this result; of two that differ only in the lock the locking one."""
    wanted = (result.order, result.segment, typed_data.struct_hash(result))
    found: dict[Address, Signed[Verdict]] = {}
    for one in reading.evidence.verdicts:
        said = one.message
        signer = signer_of(one, reading.evidence)
        fits = (said.order, said.segment, said.result) == wanted
        if signer is None or signer not in drawn.seats or not fits or said.opinion not in _SAID:
            continue
        if signer not in found or said.locks:
            found[signer] = one
    return {node: found[node] for node in drawn.seats if node in found}


def _last_block(reading: _Reading, segment: int, kind: CaseKind) -> int | None:
    """Until when the Court opens this case; None, and why, where it does not."""
    state, digest = reading.state, reading.digest
    drawn = state.cases.get(messages.case_id(digest, segment))
    own = state.cases.get(messages.case_id(digest, messages.DOUBTS + segment)) if kind is CaseKind.DOUBT else drawn
    for record in (drawn, own):
        if record is not None and (record.live or record.outcome not in REOPENED):
            how = "is under way" if record.live else f"ended: {record.outcome.name.lower() if record.outcome else ''}"
            reading.against.append(f"A case over segment {segment} {how}.")
            return None
    last = court.last_opening_block(reading.evidence.draws[0].message.block_number, reading.parameters)
    if own is not None:
        last = own.events[-1].meta.block + last - reading.evidence.draws[0].message.block_number
    if reading.block > last:
        reading.against.append(f"The court heard segment {segment} until block {last}.")
    return last


def _lacking(evidence: Evidence) -> tuple[str, ...]:
    """What the opener owes the reviewers and the evidence does not hold."""
    owed = {
        "the request": evidence.request,
        "the answer": evidence.answer,
        "the salt": evidence.salt,
        "the proof of who infers": evidence.infer_proof or None,
    }
    return tuple(name for name, value in owed.items() if value is None)


def _warnings(reading: _Reading, segment: int) -> tuple[str, ...]:
    """What may spoil a case: a committee that cannot be seated, a node without stake."""
    order, view = reading.evidence.signed_order.order, reading.view
    span = view.segments(order)[segment]
    request = draws.reviewers_request(order, view.rules, span, ZERO_HASH, (view.tab.payer,))
    try:
        draws.draw(request, view.groups[segment], seat_cap=view.rules.seat_cap, seasoning=view.seasoning)
    except ProtocolError:
        return ("Beware: the group has too few seasoned seats for a committee; the case would lapse.",)
    return ()


# ------------------------------------------------------------------------------------------------------------- summons


def _summons(reading: _Reading) -> Iterator[Summon]:
    evidence, parameters = reading.evidence, reading.parameters
    scheduler = reading.view.tab.payee
    for admission in evidence.admissions[:1]:
        if evidence.results or admission.message.order != reading.digest:
            continue
        block = admission.message.block_number
        window = (block + parameters.summons_window, block + parameters.lag)
        yield from _possible(reading, Summon(SummonsKind.RESULTS, 0, scheduler, *window))
    if not evidence.draws or evidence.secret is None:
        return
    draw, order = evidence.draws[0].message, evidence.signed_order.order
    try:
        drawn = lottery.is_drawn(order, evidence.secret, draw.beta)
    except ProtocolError:
        return
    for segment in range(len(reading.view.groups)) if drawn else ():
        if not _is_judged(reading, segment):
            window = (draw.block_number, draw.block_number + parameters.lag // 2)
            yield from _possible(reading, Summon(SummonsKind.CHECK, segment, scheduler, *window))


def _is_judged(reading: _Reading, segment: int) -> bool:
    """Whether each drawn seat of a segment said something."""
    evidence = reading.evidence
    results = [one.message for one in evidence.results]
    nodes = [signer_of(one, evidence) for one in evidence.results]
    parties = [node for node in nodes if node is not None]
    if len(parties) != len(reading.view.groups) or evidence.secret is None:
        return False
    order, draw = evidence.signed_order.order, evidence.draws[0].message
    try:
        silent = {segment: reading.state.silent_in_check(reading.digest, segment)}
        drawn = checks.verifiers(
            order, results, evidence.secret, draw.beta, nodes=parties, view=reading.view, silent=silent
        )[segment]
    except (ProtocolError, KeyError):
        return True
    return set(_verdicts(reading, results[segment], drawn)) == set(drawn.seats)


def _possible(reading: _Reading, found: Summon) -> Iterator[Summon]:
    known = reading.state.summons.get(messages.summons_id(reading.digest, found.kind, found.segment))
    if known is not None:
        reading.against.append(f"{found.kind.name.capitalize()} of segment {found.segment} were summoned already.")
    elif reading.block > found.last_block:
        reading.against.append(f"{found.kind.name.capitalize()} could be summoned until block {found.last_block}.")
    else:
        yield found
