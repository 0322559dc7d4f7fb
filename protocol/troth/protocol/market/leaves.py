"""What a claimed leaf is worth, and what a claimant shows for it (contract Leaves).

Somebody objects to a number of a claim; the claimant answers with the number's path and its leaf, ``abi.encode`` of
one of these. An order is shown with its results and a draw over them that is so fresh that the payer, who may see the
answer for the first time, has its lottery and the court as if it had been answered. A promise of inference is shown
with the node's result. A promise of a check is shown with the verdict over the result that the scheduler drew, and
with two traces that were hidden when the verifier committed to its own, the verifier's and the node's; in a tolerant
class each with the one tile that both roots together pick. Traces that agree prove the work, whatever the verdict says:
a verifier that always says yes has none, and one that computed gains nothing by saying yes. A yes is owed by such
traces alone. Any other word is owed without them once the result fell: a node that opens its trace to nobody would else
have its verifiers work for nothing, and a word that shows no work costs nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from troth.protocol import typed_data
from troth.protocol.errors import InvalidOpening
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages, prices
from troth.protocol.market.checks import Opened, agree, rows_of
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.proceedings import NodeReveal
from troth.protocol.market.signed import Draw, Opinion, Order, Promise, Result, SignedOrder, Verdict, Work
from troth.protocol.market.types import Bytes, LeafKind, Rules, Tab
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileOpening, opening_root, tile_count, tile_indices
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, to_hash32

NO_TRACE = NodeReveal()
"""No opening: what whoever does not accept may show of a trace."""


@dataclass(frozen=True, slots=True)
class OrderLeaf:
    """A client's order, its results with their nodes' signatures, and a fresh draw over them."""

    order: SignedOrder
    results: tuple[Result, ...]
    result_signatures: tuple[Bytes, ...]
    draw: Draw
    draw_signature: Bytes


@dataclass(frozen=True, slots=True)
class InferenceLeaf:
    """A promise of inference, and the result that was promised."""

    promise: Promise
    promise_signature: Bytes
    result: Result
    result_signature: Bytes


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """What is shown of a check: the verdict, the draw that names all results, the judged one, and both traces.

    ``results`` are struct hashes, one for each segment. ``own`` is the verifier's trace and ``judged`` the node's; both
    are empty where the verifier does not accept and the two do not agree.
    """

    verdict: Verdict
    signature: Bytes
    draw: Draw
    draw_signature: Bytes
    results: tuple[Hash32, ...]
    result: Result
    result_signature: Bytes
    own: NodeReveal
    judged: NodeReveal


@dataclass(frozen=True, slots=True)
class CheckLeaf:
    """A promise of a check, and what is shown of that check."""

    promise: Promise
    promise_signature: Bytes
    check: ShownCheck


Leaf = OrderLeaf | InferenceLeaf | CheckLeaf


@dataclass(frozen=True, slots=True)
class LeafContext:
    """What the chain says in the block of an answer: about the deployment, the class and who is part of a leaf.

    ``window`` is a summons', and ``answer_age`` the blocks from an order's reference block to the last draw over its
    results that the court hears (``court.answer_age``).
    ``rules`` are those of the order's class, or of the payee's for a promise. ``bonded`` is what each node of that
    class that can be slashed has at stake, locked or not. ``convicted``: who was convicted of something around the
    leaf's block. ``voided``: the court voided the promised segment, or for an order's leaf any segment of it.
    ``unanswered``: a summons for the order's results ended without them.
    """

    domain: Domain
    block: int
    window: int
    answer_age: int
    rules: Rules
    bonded: Mapping[Address, int]
    convicted: frozenset[Address] = frozenset()
    voided: bool = False
    unanswered: bool = False
    key_check: KeyCheck = signed_by_account


@dataclass(frozen=True, slots=True)
class ShownTraces:
    """What proves that a verifier computed: its own trace and the node's, as a check's leaf shows them."""

    own: NodeReveal
    judged: NodeReveal


# ------------------------------------------------------------------------------------------------- building an answer


def kind_of(leaf: Leaf) -> LeafKind:
    """What an answer calls it."""
    return LeafKind.ORDER if isinstance(leaf, OrderLeaf) else LeafKind.PROMISE


def encode(leaf: Leaf) -> bytes:
    """``abi.encode`` of what is shown, as an answer carries it."""
    return messages.abi_encode_fields(leaf)


def order_leaf(order: Signed[Order], tab: Tab, results: Sequence[Signed[Result]], draw: Signed[Draw]) -> OrderLeaf:
    """The leaf of a served order; the scheduler signs ``draw`` again with the newest block."""
    return OrderLeaf(
        SignedOrder(order.message, tab.payer, tab.payee, tab.key, order.signature),
        tuple(one.message for one in results),
        tuple(one.signature for one in results),
        draw.message,
        draw.signature,
    )


def inference_leaf(promised: Signed[Promise], result: Signed[Result]) -> InferenceLeaf:
    """The leaf of a node that served."""
    return InferenceLeaf(promised.message, promised.signature, result.message, result.signature)


def check_leaf(
    promised: Signed[Promise],
    verdict: Signed[Verdict],
    draw: Signed[Draw],
    results: Sequence[Signed[Result]],
    *,
    own: NodeReveal = NO_TRACE,
    judged: NodeReveal = NO_TRACE,
) -> CheckLeaf:
    """The leaf of a verifier; ``results`` are all that the draw names.

    ``shown`` makes the openings by which a verdict is owed at once.
    """
    hashes = tuple(typed_data.struct_hash(one.message) for one in results)
    result = results[promised.message.segment]
    words = (verdict.message, verdict.signature, draw.message, draw.signature)
    check = ShownCheck(*words, hashes, result.message, result.signature, own, judged)
    return CheckLeaf(promised.message, promised.signature, check)


def shown(
    trace: CommittedTrace, salt: Hash32, roots: tuple[Hash32, Hash32], result: Result, rules: Rules
) -> NodeReveal:
    """A trace as a check's leaf shows it: with the tile that ``roots``, the verifier's and the node's, pick."""
    root = Hash32(trace.root)
    if rules.exact:
        return NodeReveal(root, salt)
    opening = trace.open([tile_of(roots, result, rules)])
    return NodeReveal(root, salt, opening.tiles, tuple(Hash32(one) for one in opening.siblings))


def tile_of(roots: tuple[Hash32, Hash32], result: Result, rules: Rules) -> int:
    """The tile of both traces that a check's leaf shows; nobody knew it when the verifier committed."""
    own, judged = roots
    seed = Hash32(keccak256(to_hash32(own) + to_hash32(judged)))
    count = tile_count(rows_of(result, rules), rules.hidden_size, Dtype(rules.dtype))
    return tile_indices(seed, result.segment, 1, count)[0]


# --------------------------------------------------------------------------------------------------- what it is worth


def worth(leaf: Leaf, tab: Tab, number: int, standing: LeafContext) -> int:
    """What a leaf of a tab is worth at most; raises a ProtocolError where it is worth nothing."""
    message = leaf.order.order if isinstance(leaf, OrderLeaf) else leaf.promise
    if message.tab != messages.tab_id(tab):
        raise InvalidClaim("The leaf is of another tab", message.tab, "Show a leaf of this tab.")
    if message.sequence != number:
        raise InvalidClaim(f"The objection is to number {number}", message.sequence, "Show the leaf of this number.")
    # A check is owed whether or not the result stands: only its payee's own conviction voids it.
    fell = not _is_check(message) and (standing.voided or standing.unanswered)
    if fell or tab.payee in standing.convicted:
        what = "The leaf fell: in court, with its payee's conviction or with a summons that nobody answered"
        raise InvalidClaim(what, number, "Claim without it.")
    if isinstance(leaf, OrderLeaf):
        return _order_worth(leaf, tab, standing)
    _require_key(tab, leaf.promise, leaf.promise_signature, standing)
    if isinstance(leaf, InferenceLeaf):
        _require_work(leaf.promise, Work.INFERENCE, leaf.result)
        typed_data.require_signer(leaf.result, standing.domain, leaf.result_signature, tab.payee)
        return prices.promise_worth(leaf.promise, leaf.result)
    _require_checked(leaf, tab, standing)
    return leaf.promise.price


def _is_check(message: Order | Promise) -> bool:
    return isinstance(message, Promise) and message.work == Work.CHECK


def _order_worth(leaf: OrderLeaf, tab: Tab, standing: LeafContext) -> int:
    """The fee, once everything that makes it owed is shown."""
    order, domain = leaf.order.order, standing.domain
    _require_key(tab, order, leaf.order.signature, standing)
    if leaf.results and leaf.results[0].input_head != order.request_hash:
        raise InvalidClaim(
            "The first segment read another request", leaf.results[0].input_head, "Only what was ordered is owed."
        )
    nodes = _signers(leaf, messages.order_id(order, domain), domain)
    _require_fresh(leaf, tab.payee, messages.order_id(order, domain), standing)
    for node in nodes:
        if standing.bonded.get(node, 0) < standing.rules.penalty:
            what = f"The node {node} of this class has less than {standing.rules.penalty} at stake"
            raise InvalidClaim(what, standing.bonded.get(node, 0), "Only work of nodes that can lose L is owed.")
    price = prices.price(order, standing.rules, len(leaf.results), leaf.results[-1])
    ordered = min(order.max_fee, standing.rules.fee_cap)
    if price > ordered:
        raise InvalidClaim(f"The order pays {ordered} at most", price, "Only positions that were ordered are owed.")
    return price


def _signers(leaf: OrderLeaf, digest: Hash32, domain: Domain) -> list[Address]:
    """Who signed the results, one for each segment, which meet."""
    segments = messages.segment_count(leaf.order.order.ends)
    if not len(leaf.results) == len(leaf.result_signatures) == segments:
        raise InvalidClaim(f"The order has {segments} segments", len(leaf.results), "Show one signed result for each.")
    for segment, result in enumerate(leaf.results):
        if (result.order, result.segment) != (digest, segment):
            raise InvalidClaim("A result is for another place", (result.order, result.segment), "Show this one's.")
    for before, after in pairwise(leaf.results):
        counted = (before.prompt + before.cached, before.written), (after.prompt + after.cached, after.written)
        if before.output_head != after.input_head or counted[0] != counted[1]:
            raise InvalidClaim("The results do not meet", after.segment, "Show results that were drawn over.")
    pairs = zip(leaf.results, leaf.result_signatures, strict=True)
    return [typed_data.recover(result, domain, signature) for result, signature in pairs]


def _require_fresh(leaf: OrderLeaf, scheduler: Address, digest: Hash32, standing: LeafContext) -> None:
    named = leaf.draw
    if (named.order, named.results) != (digest, messages.results_hash(leaf.results)):
        raise InvalidClaim("The draw is over other results", named.results, "Draw over the results that are shown.")
    if not standing.block - standing.window <= named.block_number <= standing.block:
        what = f"The draw is not of the last {standing.window} blocks"
        raise InvalidClaim(what, named.block_number, "Sign it again.")
    if named.block_number > leaf.order.order.reference_block + standing.answer_age:
        what = f"The court hears draws up to {standing.answer_age} blocks after the order's"
        raise InvalidClaim(what, named.block_number, "It can no longer be judged, so that nothing is owed.")
    typed_data.require_signer(named, standing.domain, leaf.draw_signature, scheduler)


def _require_checked(leaf: CheckLeaf, tab: Tab, standing: LeafContext) -> None:
    """The verifier signed an opinion for the place that was promised, over the result that the scheduler drew."""
    check, domain = leaf.check, standing.domain
    verdict = check.verdict
    _require_work(leaf.promise, Work.CHECK, verdict)
    typed_data.require_signer(verdict, domain, check.signature, tab.payee)
    _require_drawn(leaf, tab, domain)
    if verdict.opinion not in {Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL}:
        raise InvalidClaim("That is no verifier's opinion", verdict.opinion, "Claim without it.")
    if verdict.opinion == Opinion.ACCEPT or check.own.root != NO_TRACE.root:
        _require_agreement(verdict, check.result, ShownTraces(check.own, check.judged), tab.payee, standing.rules)
    elif not (
        typed_data.recover(check.result, domain, check.result_signature) in standing.convicted or standing.voided
    ):
        place = (verdict.order, verdict.segment)
        raise InvalidClaim("The verifier accepts nothing, and the result stands", place, "Bring it to the court first.")


def _require_drawn(leaf: CheckLeaf, tab: Tab, domain: Domain) -> None:
    """The judged result is that of a draw which the payer, a scheduler, signed over this order."""
    check, segment = leaf.check, leaf.promise.segment
    if check.draw.order != leaf.promise.order:
        raise InvalidClaim("The draw is over another order", check.draw.order, "Show the promised order's draw.")
    typed_data.require_signer(check.draw, domain, check.draw_signature, tab.key)
    if Hash32(keccak256(b"".join(check.results))) != check.draw.results:
        raise InvalidClaim("The draw is over other results", check.draw.results, "Show the results that it names.")
    if segment >= len(check.results):
        raise InvalidClaim(f"The draw has {len(check.results)} results", segment, "Claim without it.")
    drawn = check.results[segment]
    if not typed_data.struct_hash(check.result) == drawn == check.verdict.result:
        raise InvalidClaim("The judged result is not the drawn one", check.verdict.result, "Show what was judged.")


def shows_work(verdict: Verdict, result: Result, traces: ShownTraces, verifier: Address, rules: Rules) -> bool:
    """Whether two traces prove that a verifier computed, so that its verdict is owed whatever it says."""
    try:
        _require_agreement(verdict, result, traces, verifier, rules)
    except InvalidClaim:
        return False
    return True


def _require_agreement(verdict: Verdict, result: Result, traces: ShownTraces, verifier: Address, rules: Rules) -> None:
    """The verifier judged a trace with which the one that it had committed to agrees."""
    own, judged = traces.own, traces.judged
    hidden = messages.verifier_commitment(verdict.order, verdict.segment, verifier, root=own.root, salt=own.salt)
    named = (messages.trace_commitment(judged.root, judged.salt), hidden)
    if named != (result.trace_commitment, verdict.commitment):
        raise InvalidClaim("A trace is not what was committed to", named, "Show what was signed.")
    if not _agree(traces, result, rules):
        raise InvalidClaim("The verifier's own trace does not agree with the judged one", own.root, "Claim without it.")


def _agree(traces: ShownTraces, result: Result, rules: Rules) -> bool:
    """Whether two traces agree: their roots, or the tile of each that both roots together pick."""
    if not rules.exact:
        index = tile_of((traces.own.root, traces.judged.root), result, rules)
        for one in (traces.own, traces.judged):
            _require_tile(one, index, result, rules)
    return agree(_opened(traces.own), _opened(traces.judged), rules)


def _require_tile(one: NodeReveal, index: int, result: Result, rules: Rules) -> None:
    rows, opening = rows_of(result, rules), TileOpening(one.tiles, one.siblings)
    try:
        proven = opening_root(rows, rules.hidden_size, Dtype(rules.dtype), [index], opening)
    except InvalidOpening as error:
        raise InvalidClaim(error.what, error.value, error.remedy) from error
    if proven != one.root:
        raise InvalidClaim("The tile belongs to another trace", proven, f"Open tile {index} of this trace.")


def _opened(one: NodeReveal) -> Opened:
    return Opened(one.root, one.salt, TileOpening(one.tiles, one.siblings))


def _require_key(tab: Tab, message: Order | Promise, signature: bytes, standing: LeafContext) -> None:
    if not standing.key_check(tab.key, messages.signing_digest(message, standing.domain), signature):
        raise InvalidClaim("The tab key did not sign this", signature, "Show what it signed.")


def _require_work(promise: Promise, work: Work, done: Result | Verdict) -> None:
    if promise.work != work:
        raise InvalidClaim("Other work was promised", promise.work, "Show the promise of this work.")
    if (done.order, done.segment) != (promise.order, promise.segment):
        raise InvalidClaim("The work is for another place", (done.order, done.segment), "Show the promised work.")
