"""What in a piece of evidence convicts somebody by itself, in one transaction, found by trying every rule on it.

Whoever holds two words of one party that contradict each other need not know which rule they break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from troth.cases import calls
from troth.cases.evidence import Evidence
from troth.cases.standing import require_order, signer_of
from troth.protocol import vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.market import convictions, draws, messages, token_proofs
from troth.protocol.market.calls import PartCall
from troth.protocol.market.checks import OrderView
from troth.protocol.market.convictions import Conviction
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Draw
from troth.protocol.market.state import State
from troth.protocol.market.token_proofs import TokenProof
from troth.protocol.market.types import Contracts, DrawRequest, Role, Tab
from troth.protocol.types import ZERO_HASH, Address, Hash32

Message = TypeVar("Message")

WORDS = {
    Fault.TWO_RESULTS: "signed two results for one segment",
    Fault.TWO_ROWS: "signed two rows for one position",
    Fault.TWO_VERDICTS: "said two things about one result, or judged by another trace than it had committed to",
    Fault.TWO_ADMISSIONS: "admitted one order with different nodes",
    Fault.TWO_DRAWS: "drew twice over one order",
    Fault.WRONG_NODES: "admitted a node that was not drawn",
    Fault.WRONG_BETA: "drew with another output than its VRF's",
    Fault.HEADS_APART: "drew over results that do not meet",
    Fault.PROMISE_BROKEN: "left a settled claim unpaid",
    Fault.BY_PROOF: "chose a token that another one beats, by its own state and the model's weights",
}


@dataclass(frozen=True, slots=True)
class Proof:
    """A conviction with what its call shows; ``request``: the draw whose hints the call takes, if it takes any.

    ``date`` shows a node's order of ``reference_block``, where the evidence holds it.
    """

    conviction: Conviction
    build: Callable[[Contracts, bytes], PartCall]
    request: DrawRequest | None = None
    segment: int = 0
    date: Callable[[Contracts], PartCall] | None = None
    reference_block: int = 0

    @property
    def words(self) -> str:
        """Who did what."""
        return f"{self.conviction.convict} {WORDS[self.conviction.fault]}"


def proofs_in(evidence: Evidence, state: State, view: OrderView | None) -> tuple[Proof, ...]:
    """Every conviction that the evidence makes; ``view`` None: it holds no order, so that only pairs of words count.

    One for each party and fault: a subject convicts once.
    """
    found = [*(_dated(one, evidence) for one in _of_nodes(evidence)), *_of_payers(evidence, state)]
    if view is not None:
        require_order(evidence, view)
        found += [*_of_two_words(evidence, view), *_of_schedulers(evidence, view)]
    first = {(one.conviction.fault, one.conviction.convict, one.conviction.order): one for one in reversed(found)}
    return tuple(reversed(first.values()))


def by_arithmetic(proof: TokenProof, convict: Address, order: Hash32) -> Proof:
    """A conviction by what a node computed; who makes it has judged the proof."""

    def build(contracts: Contracts, _: bytes) -> PartCall:
        return calls.convict_by_proof(contracts, token_proofs.encode(proof, contracts))

    return Proof(Conviction(Fault.BY_PROOF, convict, order), build, segment=proof.result.segment)


def _dated(proof: Proof, evidence: Evidence) -> Proof:
    """With the order, where it is the one that the words are about."""
    found = proof.conviction
    if evidence.order is None or evidence.tab is None or found.order != evidence.order_id:
        return proof
    order = evidence.order.message
    date = _plain(calls.date, evidence, found.fault, found.convict, proof.segment)
    return replace(proof, date=lambda contracts: date(contracts, b""), reference_block=order.reference_block)


def _of_nodes(evidence: Evidence) -> Iterator[Proof]:
    domain = evidence.domain
    rules: tuple[tuple[Any, Any, Iterator[tuple[Signed[Any], Signed[Any]]]], ...] = (
        (
            convictions.two_results,
            calls.convict_results,
            _pairs(evidence, (*evidence.results, *evidence.other_results), ("order", "segment")),
        ),
        (
            convictions.two_rows,
            calls.convict_rows,
            _pairs(evidence, evidence.signed_rows, ("order", "segment", "position")),
        ),
        (
            convictions.two_verdicts,
            calls.convict_verdicts,
            _pairs(evidence, evidence.verdicts, ("order", "segment", "result")),
        ),
        (convictions.other_commitment, calls.convict_commitment, _committed(evidence)),
    )
    for rule, call, pairs in rules:
        for one, other in pairs:
            for proof in _tried(partial(rule, one, other, domain), _plain(call, one, other)):
                yield replace(proof, segment=one.message.segment)


def _of_two_words(evidence: Evidence, view: OrderView) -> Iterator[Proof]:
    order = evidence.signed_order.order
    for pair in _pairs(evidence, evidence.admissions, ("order",)):
        build = _plain(calls.convict_admissions, evidence, *pair)
        yield from _tried(partial(convictions.two_admissions, order, *pair, view), build)
    for words in _pairs(evidence, evidence.draws, ("order",)):
        build = _plain(calls.convict_draws, evidence, *words)
        yield from _tried(partial(convictions.two_draws, order, *words, view), build)


def _of_schedulers(evidence: Evidence, view: OrderView) -> Iterator[Proof]:
    order, alpha = evidence.signed_order.order, messages.draw_alpha(evidence.order_id)
    results, shown = [one.message for one in evidence.results], evidence.draw_proof
    for draw in evidence.draws:

        def convict(contracts: Contracts, _: bytes, draw: Signed[Draw] = draw) -> PartCall:
            return calls.convict_beta(contracts, evidence, draw, calls.proof_of(view.vrf_key, alpha, shown))

        yield from _tried(partial(convictions.wrong_beta, order, draw, shown, view), convict)
        build = _plain(calls.convict_heads, evidence, draw, results)
        yield from _tried(partial(convictions.heads_apart, order, draw, results, view), build)
    for admission in evidence.admissions:
        for segment in range(min(len(evidence.nodes), len(view.groups))):
            yield from _wrong_node(evidence, view, admission, segment)


def _wrong_node(evidence: Evidence, view: OrderView, admission: Signed[Any], segment: int) -> Iterator[Proof]:
    order, alpha = evidence.signed_order.order, messages.infer_alpha(evidence.order_id)

    def build(contracts: Contracts, hints: bytes) -> PartCall:
        proof = calls.proof_of(view.vrf_key, alpha, evidence.infer_proof)
        return calls.convict_nodes(contracts, evidence, admission, segment=segment, proof=proof, hints=hints)

    def convict() -> Conviction:
        proof, nodes = evidence.infer_proof, evidence.nodes
        return convictions.wrong_nodes(order, admission, nodes, segment=segment, proof=proof, view=view)

    yield from _tried(convict, build, lambda: _inferencers(evidence, view, segment))


def _inferencers(evidence: Evidence, view: OrderView, segment: int) -> DrawRequest:
    order = evidence.signed_order.order
    beta = Hash32(vrf.verify(view.vrf_key, messages.infer_alpha(evidence.order_id), evidence.infer_proof))
    span = view.segments(order)[segment]
    return draws.inferencers_request(order, view.rules, span, messages.segment_seed(beta, segment))


def _of_payers(evidence: Evidence, state: State) -> Iterator[Proof]:
    """Tabs that settled claims left short; the tab's key is the scheduler that promised."""
    for tab in evidence.short_tabs:
        record, party = state.tabs.get(messages.tab_id(tab)), state.parties.get(tab.key)
        if record is None or not record.short or party is None or party.role is not Role.SCHEDULER:
            continue
        conviction = Conviction(Fault.PROMISE_BROKEN, tab.key, ZERO_HASH)

        def build(contracts: Contracts, _: bytes, tab: Tab = tab) -> PartCall:
            return calls.convict_payer(contracts, tab)

        yield Proof(conviction, build)


def _plain(build: Callable[..., PartCall], *words: Any) -> Callable[[Contracts, bytes], PartCall]:
    """A call that takes no hints."""
    return lambda contracts, _: build(contracts, *words)


def _tried(
    convict: Callable[[], Conviction],
    build: Callable[[Contracts, bytes], PartCall],
    request: Callable[[], DrawRequest] | None = None,
) -> Iterator[Proof]:
    """The proof, if the rule holds; whatever the protocol refuses convicts nobody."""
    try:
        conviction = convict()
        yield Proof(conviction, build, None if request is None else request())
    except ProtocolError:
        return


def _pairs(
    evidence: Evidence, signed: Iterable[Signed[Message]], place: Sequence[str]
) -> Iterator[tuple[Signed[Message], Signed[Message]]]:
    """Two different words of one signer about one place; each against the first that was given."""
    first: dict[tuple[Any, ...], Signed[Message]] = {}
    for one in signed:
        signer: Address | None = signer_of(one, evidence)
        key = (signer, *(getattr(one.message, name) for name in place))
        earlier = first.setdefault(key, one)
        if signer is not None and earlier.message != one.message:
            yield earlier, one


def _committed(evidence: Evidence) -> Iterator[tuple[Signed[Any], Signed[Any]]]:
    """Each commitment with the verdicts of its signer over the same result."""
    before: dict[tuple[Any, ...], list[Signed[Any]]] = {}
    for one in evidence.commitments:
        before.setdefault(_place(evidence, one), []).append(one)
    for said in evidence.verdicts:
        place = _place(evidence, said)
        for one in before.get(place, ()):
            if place[0] is not None and one.message.commitment != said.message.commitment:
                yield one, said


def _place(evidence: Evidence, one: Signed[Any]) -> tuple[Any, ...]:
    """Who speaks about which result."""
    return signer_of(one, evidence), one.message.order, one.message.segment, one.message.result
