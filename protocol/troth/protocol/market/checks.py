"""What a client, a node or an auditor verifies of one order: who serves it, what was signed, who checks, what they say.

Everybody computes the same from the same view of the chain. A scheduler chooses no party: inferencers follow from its
VRF over the order, verifiers from the lottery's output, the client's secret and the nodes' results. Every function
raises with a remedy; what raises InvalidAdmission, InvalidResults or InvalidCheck under the scheduler's signature is
evidence, too (``convictions``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from troth.protocol import typed_data, vrf
from troth.protocol.agreement import AgreementRule
from troth.protocol.errors import InvalidOpening, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.market import draws, messages, prices
from troth.protocol.market.draws import DrawnSeats, GroupHistory
from troth.protocol.market.errors import InvalidAdmission, InvalidCheck, InvalidPromise, InvalidResults
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.signed import (
    Admission,
    Draw,
    Opinion,
    Order,
    Promise,
    Result,
    TraceCommitment,
    Verdict,
    Work,
)
from troth.protocol.market.types import Ask, DrawRequest, Rules, Tab, TabState
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TILE_ROWS, TileOpening, opening_root, tile_count, tile_indices
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, to_hash32

HEAD_TAG = keccak256(b"troth/market/head/1")
TILES_LIMIT, ROWS_LIMIT = 1 << 22, (1 << 32) - 1
"""Tiles and rows of the longest trace that is opened: whatever a node signed can be judged in one call."""
NOBODY: Mapping[int, Sequence[Address]] = MappingProxyType({})
"""No node stayed silent: nothing was summoned."""
DRAW_AGE = 3
"""Blocks that the scheduler's newest block may lie behind the client's. More, and a scheduler shortens the lag, in
which a false answer is not paid yet, by naming an old block."""
MOST_SETTLED_BLOCKS = 32
"""That a scheduler may have follow the block which an order names, so that no reorganisation changes who is drawn."""


@dataclass(frozen=True, slots=True)
class OrderView:
    """One party's own view of the chain for one order: what it read, at the order's reference block and now."""

    domain: typed_data.Domain
    execution_class: Hash32
    rules: Rules
    vrf_key: tuple[int, int]
    tab: Tab
    groups: tuple[GroupHistory, ...]
    block: int
    time: int
    lag: int
    seasoning: int
    reference_age: int
    tab_state: TabState = TabState()  # noqa: RUF009 -- frozen
    key_check: KeyCheck = signed_by_account

    def segments(self, order: Order) -> tuple[Segment, ...]:
        """The layer split of an order; raises InvalidField unless it covers the model."""
        return messages.segments_of(order, self.rules.layers)


def head(order: Hash32, salt: Hash32, link: Hash32) -> Hash32:
    """The head of a chain of rows: what a result names of what its node read and gave.

    Salted per order (the salt goes to nodes and verifiers with the rows), so that nobody guesses a short prompt from
    it.
    """
    return Hash32(keccak256(HEAD_TAG + to_hash32(order) + to_hash32(salt) + to_hash32(link)))


def rows_of(result: Result, rules: Rules) -> int:
    """Rows of a result's trace: one per position, but none for the last token; no more than can be opened."""
    rows = max(prices.positions(result) - 1, 1)
    if rules.exact:
        return min(rows, ROWS_LIMIT)
    return min(rows, TILE_ROWS * max(TILES_LIMIT // tile_count(1, rules.hidden_size, Dtype(rules.dtype)), 1))


# ------------------------------------------------------------------------------------------------------- who serves


def candidates(order: Order, proof: bytes, view: OrderView) -> tuple[tuple[Address, ...], ...]:
    """The nodes that may infer each segment, by the scheduler's proof; raises InvalidAdmission if it does not hold."""
    alpha = messages.infer_alpha(messages.order_id(order, view.domain))
    return drawn_candidates(order, _beta(view.vrf_key, alpha, proof, "The proof of who infers does not hold"), view)


def drawn_candidates(order: Order, beta: Hash32, view: OrderView) -> tuple[tuple[Address, ...], ...]:
    """The same by the output of a proof that was made here, or verified before."""
    return tuple(
        _draw(
            draws.inferencers_request(order, view.rules, span, messages.segment_seed(beta, segment)), segment, view
        ).operators
        for segment, span in enumerate(view.segments(order))
    )


def require_admission(
    order: Order, admission: Signed[Admission], nodes: Sequence[Address], proof: bytes, view: OrderView
) -> tuple[tuple[Address, ...], ...]:
    """The candidates, once the scheduler's admission names one of them for each segment; raises InvalidAdmission.

    (1) The scheduler signed it, (2) for this order, (3) with these nodes, (4) at a block that exists and does not lie
    before the order's, (5) and each node is among those that the proof draws.
    """
    named = _require_admitted(order, admission, view)
    if named.nodes != messages.nodes_hash(nodes):
        raise InvalidAdmission("The admission names other nodes", nodes, "Ask which nodes were admitted.")
    drawn = candidates(order, proof, view)
    for segment, (node, group) in enumerate(zip(nodes, drawn, strict=False)):
        if node not in group:
            what = f"The node of segment {segment} was not drawn; {', '.join(group)} were"
            raise InvalidAdmission(what, node, "Keep the admission: it convicts the scheduler.")
    if len(nodes) != len(drawn):
        raise InvalidAdmission(f"The order has {len(drawn)} segments", len(nodes), "Name one node for each.")
    return drawn


def require_own_place(
    order: Order, admission: Signed[Admission], place: tuple[int, Address], proof: bytes, view: OrderView
) -> tuple[tuple[Address, ...], ...]:
    """The same for a node of a veiled class, which is told no other. ``place``: a segment for which it was drawn.

    Whether the admission names it, only the client can see. What it is owed follows from its promise and its result.
    """
    _require_admitted(order, admission, view)
    segment, node = place
    drawn = candidates(order, proof, view)
    if segment >= len(drawn) or node not in drawn[segment]:
        raise InvalidAdmission(f"This node was not drawn for segment {segment}", node, "Ask the nodes that were drawn.")
    return drawn


def _require_admitted(order: Order, admission: Signed[Admission], view: OrderView) -> Admission:
    named = admission.require(view.domain, view.tab.payee)
    if named.order != messages.order_id(order, view.domain):
        raise InvalidAdmission("Another order was admitted", named.order, "Ask for the admission of this order.")
    if not order.reference_block <= named.block_number <= view.block:
        what = f"An admission lies between the order's block {order.reference_block} and block {view.block}"
        raise InvalidAdmission(what, named.block_number, "Compare both views of the chain.")
    return named


def require_promise(
    order: Order, promised: Signed[Promise], *, segment: int, work: Work, least: int, view: OrderView
) -> Promise:
    """A promise that pays a node at least ``least`` for its part of an order, before it begins.

    The scheduler's operator signs it as the key of its tab with the node: so its stake pays if the tab does not. Raises
    InvalidPromise where it names other work, pays less, or asks above what the order pays.
    """
    promise = promised.require(view.domain, view.tab.payee)
    expected = (messages.order_id(order, view.domain), segment, work, order.reference_block)
    if (promise.order, promise.segment, promise.work, promise.reference_block) != expected:
        raise InvalidPromise("The promise is for other work", promise, "Ask for a promise of exactly this work.")
    if promise.price < least:
        raise InvalidPromise(
            f"The promise pays less than {least}", promise.price, "Ask for a promise that pays it all."
        )
    span = view.segments(order)[segment]
    limit = prices.bound(order, span.end - span.first, view.rules.layers)
    asked = Ask(promise.prompt_ask, promise.cached_ask, promise.written_ask)
    if work is Work.INFERENCE and not prices.within(asked, limit):
        raise InvalidPromise("The promise asks more than the order pays for these layers", asked, "Use the node's ask.")
    return promise


# ---------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client received: tokens of its prompt, tokens of the answer, and their salted hash."""

    prompt: int
    written: int
    output_hash: Hash32


def require_results(
    order: Order, results: Sequence[Signed[Result]], nodes: Sequence[Address], view: OrderView
) -> tuple[Result, ...]:
    """The results, once each admitted node signed its own and they meet; raises InvalidResults.

    (1) One for each segment, (2) signed by its node, for this order; (3) the first segment read the request, each other
    one what the one before gave; (4) all count the same positions, which are paid; (5) only the last names an answer.
    """
    if not len(results) == len(nodes) == len(view.segments(order)):
        raise InvalidResults("There is one result for each segment", len(results), "Ask for the missing results.")
    digest = messages.order_id(order, view.domain)
    given = tuple(one.require(view.domain, node) for one, node in zip(results, nodes, strict=True))
    for segment, result in enumerate(given):
        if (result.order, result.segment) != (digest, segment):
            raise InvalidResults("A result is for another place", (result.order, result.segment), "Ask for this one's.")
        if (result.output_hash != ZERO_HASH) != (segment == len(given) - 1):
            raise InvalidResults("Only the last segment names the answer", segment, "Ask the node to sign again.")
        if prices.positions(result) < 2:
            raise InvalidResults("An answer has a prompt and a token", prices.positions(result), "Do not pay for it.")
    if given[0].input_head != order.request_hash:
        raise InvalidResults("The first segment read another request", given[0].input_head, "Do not acknowledge it.")
    require_meeting(given)
    return given


def require_answer(results: Sequence[Result], answer: Answer) -> None:
    """Raise InvalidResults unless the last result stands for the answer that the client received, and its length.

    Only the client can say so: what nobody received, nobody may count.
    """
    last = results[-1]
    if last.output_hash != answer.output_hash:
        raise InvalidResults("The node signed another answer", last.output_hash, "Keep both; do not acknowledge it.")
    if (last.prompt + last.cached, last.written) != (answer.prompt, answer.written):
        counted = (last.prompt, last.cached, last.written)
        what = f"{answer.prompt} tokens were asked and {answer.written} received"
        raise InvalidResults(what, counted, "Do not acknowledge positions that were not received.")


def require_meeting(results: Sequence[Result]) -> None:
    """Raise InvalidResults unless each segment read what the one before gave, and all count the same positions."""
    for segment, (before, after) in enumerate(pairwise(results), start=1):
        if after.input_head != before.output_head:
            what = f"Segment {segment} read other rows than segment {segment - 1} gave"
            raise InvalidResults(
                what, after.input_head, "Keep the scheduler's draw over them: it convicts the scheduler."
            )
        if (after.prompt + after.cached, after.written) != (before.prompt + before.cached, before.written):
            what = f"Segment {segment} counts other positions than segment {segment - 1}"
            raise InvalidResults(
                what, (after.prompt, after.cached, after.written), "Do not pay for positions not seen."
            )


def require_draw(
    order: Order, draw: Signed[Draw], results: Sequence[Result], proof: bytes, *, seen_at: int, view: OrderView
) -> Hash32:
    """The lottery's beta, once the scheduler signed it over these results; raises InvalidResults or InvalidCheck.

    (1) The scheduler signed it for this order and these results; (2) beta is the output of its VRF over the order;
    (3) its block is fresh at ``seen_at``, when the client got it, since the lag runs from there.
    """
    named = draw.require(view.domain, view.tab.payee)
    digest = messages.order_id(order, view.domain)
    if named.order != digest or named.results != messages.results_hash(results):
        raise InvalidResults("The scheduler drew over other results", named.results, "Keep both: two draws convict it.")
    if _beta(view.vrf_key, messages.draw_alpha(digest), proof, "The lottery's proof does not hold") != named.beta:
        raise InvalidCheck(
            "Beta is not the output of the proof", named.beta, "Keep the draw: it convicts the scheduler."
        )
    if not seen_at - DRAW_AGE <= named.block_number <= seen_at:
        what = f"The draw names a block that is not within {DRAW_AGE} of block {seen_at}"
        raise InvalidCheck(what, named.block_number, "Refuse it and ask for a draw with the newest block.")
    return named.beta


# ------------------------------------------------------------------------------------------------------------ checks


@dataclass(frozen=True, slots=True)
class Opened:
    """What a party opens in a check: its trace root, its salt and its tiles (none in an exact class)."""

    root: Hash32
    salt: Hash32
    tiles: TileOpening = TileOpening(b"", ())  # noqa: RUF009 -- frozen


def verifiers(
    order: Order,
    results: Sequence[Result],
    secret: Hash32,
    beta: Hash32,
    *,
    nodes: Sequence[Address],
    view: OrderView,
    silent: Mapping[int, Sequence[Address]] = NOBODY,
) -> tuple[DrawnSeats, ...]:
    """The seats that check each segment; ``beta`` is the lottery's, whose proof was checked (``require_draw``).

    Without the owners of all inferencers: a friend's word about one's own work is worth nothing. ``silent`` are the
    nodes that a summons of a segment's check proved silent, whose owners' seats are passed over, too.
    """
    digest = messages.order_id(order, view.domain)
    seed = messages.check_seed(digest, secret, beta, messages.results_hash(results))
    served = [group.owners[node] for group, node in zip(view.groups, nodes, strict=True)]

    def drawn(segment: int, span: Segment) -> DrawnSeats:
        owners = view.groups[segment].owners
        excluded = dict.fromkeys((*served, *(owners[node] for node in silent.get(segment, ()))))
        own_seed = messages.segment_seed(seed, segment)
        return _draw(draws.verifiers_request(order, view.rules, span, own_seed, tuple(excluded)), segment, view)

    return tuple(drawn(segment, span) for segment, span in enumerate(view.segments(order)))


def require_verdicts(
    result: Result,
    verdicts: Mapping[Address, Signed[Verdict]],
    commitments: Mapping[Address, Signed[TraceCommitment]],
    drawn: DrawnSeats,
    view: OrderView,
) -> dict[Address, Opinion]:
    """Each drawn verifier's opinion over a result; raises InvalidCheck for a verdict that makes no check.

    Who checks must have been drawn, must speak about this result, and must have committed to a trace of its own
    before it saw the node's: the verdict names that commitment.
    """
    opinions: dict[Address, Opinion] = {}
    wanted = (result.order, result.segment, typed_data.struct_hash(result))
    for verifier, signed in verdicts.items():
        if verifier not in drawn.operators:
            raise InvalidCheck("The verdict is of a node that was not drawn", verifier, "Leave it out.")
        verdict = signed.require(view.domain, verifier)
        if (verdict.order, verdict.segment, verdict.result) != wanted:
            raise InvalidCheck("The verdict is over another result", verdict.result, "Ask for one over this result.")
        commitment = commitments.get(verifier)
        hidden = None if commitment is None else commitment.require(view.domain, verifier)
        if hidden is None or (hidden.order, hidden.segment, hidden.result, hidden.commitment) != (
            *wanted,
            verdict.commitment,
        ):
            raise InvalidCheck(
                "The verdict names another commitment", verdict.commitment, "Ask for what was committed."
            )
        if verdict.opinion not in {Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL}:
            raise InvalidCheck(
                "A verifier accepts, rejects or cannot tell", verdict.opinion, "Ask for another verdict."
            )
        opinions[verifier] = Opinion(verdict.opinion)
    return opinions


def majority(drawn: DrawnSeats, opinions: Mapping[Address, Opinion]) -> Opinion:
    """What more than half of the k drawn seats say, else CANNOT_TELL; who is silent counts as nothing."""
    total = len(drawn.operators)
    for opinion in (Opinion.REJECT, Opinion.ACCEPT):
        if 2 * sum(seats for node, seats in drawn.seats.items() if opinions.get(node) == opinion) > total:
            return opinion
    return Opinion.CANNOT_TELL


def check_tiles(second_secret: Hash32, commitments: Sequence[Hash32], result: Result, rules: Rules) -> tuple[int, ...]:
    """The tiles that everybody opens; they follow from the client's second secret, shown after all have committed.

    ``commitments`` are those of the drawn verifiers in the order of their first seat.
    """
    seed = messages.check_tiles_seed(second_secret, commitments)
    count = tile_count(rows_of(result, rules), rules.hidden_size, Dtype(rules.dtype))
    # A short trace has fewer tiles than the class samples: then all of them are opened.
    return tile_indices(seed, result.segment, min(rules.tiles, count), count)


def require_node_opening(opened: Opened, result: Result, indices: Sequence[int], rules: Rules) -> None:
    """Raise InvalidCheck unless the node opens the trace that its result commits to, at these tiles."""
    if messages.trace_commitment(opened.root, opened.salt) != result.trace_commitment:
        raise InvalidCheck("The node opens another trace than it signed", opened.root, "Summon the check.")
    _require_tiles(opened, result, indices, rules)


def proper_openings(
    opened: Mapping[Address, Opened],
    commitments: Mapping[Address, Signed[TraceCommitment]],
    result: Result,
    indices: Sequence[int],
    rules: Rules,
) -> dict[Address, Opened]:
    """The openings that fit what their verifiers committed to; the others count as not shown."""

    def fits(verifier: Address, shown: Opened) -> bool:
        if verifier not in commitments:
            return False
        expected = messages.verifier_commitment(
            result.order, result.segment, verifier, root=shown.root, salt=shown.salt
        )
        try:
            _require_tiles(shown, result, indices, rules)
        except InvalidCheck:
            return False
        return commitments[verifier].message.commitment == expected

    return {verifier: shown for verifier, shown in opened.items() if fits(verifier, shown)}


def _require_tiles(opened: Opened, result: Result, indices: Sequence[int], rules: Rules) -> None:
    if rules.exact:
        return
    try:
        proven = opening_root(rows_of(result, rules), rules.hidden_size, Dtype(rules.dtype), indices, opened.tiles)
    except InvalidOpening as error:
        raise InvalidCheck(error.what, error.value, error.remedy) from error
    if proven != opened.root:
        raise InvalidCheck("The tiles belong to another trace", proven, "Count this party as silent.")


def agree(first: Opened, second: Opened, rules: Rules) -> bool:
    """Whether two openings agree as the contract compares them: equal roots, or tiles within the class's tolerance."""
    if rules.exact:
        return first.root == second.root
    rule = AgreementRule(Dtype(rules.dtype), rules.mantissa_bits, rules.steps, rules.theta)
    return rule.agrees(first.tiles.tiles, second.tiles.tiles)


def honest_opinions(
    opinions: Mapping[Address, Opinion], node: Opened | None, opened: Mapping[Address, Opened], rules: Rules
) -> dict[Address, Opinion]:
    """The opinions that openings do not contradict.

    Who accepts and shows nothing, or a trace that disagrees with the node's, did not check: its word counts as
    CANNOT_TELL. So a verifier that always agrees is seen by the client at its first check.
    """

    def counted(verifier: Address, opinion: Opinion) -> Opinion:
        shown = opened.get(verifier)
        agreed = shown is not None and (node is None or agree(shown, node, rules))
        contradicted = opinion is Opinion.ACCEPT and not agreed
        return Opinion.CANNOT_TELL if contradicted else opinion

    return {verifier: counted(verifier, opinion) for verifier, opinion in opinions.items()}


def _beta(key: tuple[int, int], alpha: Hash32, proof: bytes, what: str) -> Hash32:
    try:
        return Hash32(vrf.verify(key, alpha, proof))
    except InvalidProof as error:
        raise InvalidAdmission(what, proof, "Compare both views of the chain, then leave this scheduler.") from error


def _draw(request: DrawRequest, segment: int, view: OrderView) -> DrawnSeats:
    group = view.groups[segment]
    return draws.draw(request, group, seat_cap=view.rules.seat_cap, seasoning=view.seasoning)
