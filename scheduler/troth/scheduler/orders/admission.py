"""Taking an order: the checks in their order, each refusal with what would help; then the draw, and one signature.

Nothing is kept and nothing is owed before every check has passed. The admission is signed once: it is journalled with
the promises before anybody sees it, and the journal takes one for each order.
"""

from __future__ import annotations

import asyncio
import json
import secrets as randomness
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from troth.protocol import vrf
from troth.protocol.architecture import text_part
from troth.protocol.errors import InvalidField, InvalidGrammar, InvalidRequest, InvalidSignature, ProtocolError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, NO_LOGPROBS
from troth.protocol.market import checks, life, messages, prices
from troth.protocol.market.bodies import Submission
from troth.protocol.market.checks import OrderView
from troth.protocol.market.economy import GAIN_TIMES, LOSS_TIMES
from troth.protocol.market.errors import InvalidDrawRequest, InvalidOrder, InvalidVoucher
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission, Order, Promise
from troth.protocol.market.signed import Work as WorkKind
from troth.protocol.market.types import Ask, PotKind, TabState, Voucher
from troth.protocol.market.views import scheduler_of
from troth.protocol.masks import compiled
from troth.protocol.reputation import LEAST_REPUTATION
from troth.protocol.request import Request, from_canonical_bytes, request_hash
from troth.protocol.types import Address, Hash32, pack_ends
from troth.scheduler.errors import (
    AlreadyOrdered,
    AnswersUnacknowledged,
    BadRequest,
    BadSignature,
    BlockForgotten,
    BlockTooOld,
    BlockTooYoung,
    ClaimsUnacknowledged,
    GroupTooSmall,
    NodeUnpaid,
    NodeUntrusted,
    OrderInvalid,
    OtherSplit,
    PriceTooLow,
    PromptTooLong,
    StakeExhausted,
    TabNotOpen,
    TabTooSmall,
    TokenOutOfVocabulary,
    VoucherRefused,
)
from troth.scheduler.orders.choosing import ProspectiveOrder, choose
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.offers import ClassOffer
from troth.scheduler.orders.steps import AdmittedStep
from troth.scheduler.tabs.database import Statement, StorageFailed
from troth.scheduler.tabs.fallen import forgive_fallen, overdue

TOLERATED_CAPS = 8
"""Fees of the longest orders of a class that a client may owe for longer than any case needs: one that was away as its
answers came has forgotten some, and waits for a claim of them."""


@dataclass(frozen=True, slots=True)
class _CheckedOrder:
    """An order that passed every check: what was sent, what it asks for, and the chain as it is seen."""

    context: SchedulerContext
    sent: Submission
    request: Request
    offer: ClassOffer
    view: OrderView

    @property
    def order(self) -> Order:
        return self.sent.order.message

    @property
    def order_id(self) -> Hash32:
        return messages.order_id(self.order, self.view.domain)

    @property
    def wanted(self) -> ProspectiveOrder:
        """The order for who chooses among nodes."""
        spans, positions = self.offer.spans, self.request.position_limit
        return ProspectiveOrder(self.order_id, self.order.execution_class, spans, positions)


@dataclass(frozen=True, slots=True)
class _DrawnNodes:
    """Who may serve, and by which proof."""

    proof: bytes
    candidates: tuple[tuple[Address, ...], ...]


async def admit(
    context: SchedulerContext,
    sent: Submission,
    preferred: Sequence[Address] = (),
    entering: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> OrderSession:
    """Take an order; raises one of OrderRefused's kinds, StorageFailed or ChainError, with nothing kept.

    ``preferred``: see ``choosing.choose``. ``entering`` is held while the order is written, and may refuse it.
    """
    order = sent.order.message
    offer = _offer(context, order)
    if sent.tab.payee != context.operator.address:
        raise BadRequest("The tab is with another scheduler", sent.tab.payee, f"This is {context.operator.address}.")
    request = _request(sent, offer)
    young = order.reference_block >= context.ledger.block - context.settled
    if young or not context.ledger.state.tab_state(order.tab).known:
        # The client may have seen a block, or opened its tab, that was not followed yet.
        await context.ledger.catch_up()
    asked = _checked(context, sent, request, offer)
    if request.transforms.grammar is not None:
        # Compiling takes longer than all the rest: nobody has it done who could not pay. Meanwhile books may change.
        await asyncio.to_thread(_require_grammar, request, offer)
        asked = _checked(context, sent, request, offer)
    drawn = _draw(asked)
    nodes = _choose(asked, drawn, preferred)
    try:
        with entering():
            return await _take(asked, nodes, drawn.proof)
    except BaseException:
        if context.routes is not None:
            context.routes.release(asked.wanted)  # the choice held room for it
        raise


# ------------------------------------------------------------------------------------------- the checks, in their order


def _checked(context: SchedulerContext, sent: Submission, request: Request, offer: ClassOffer) -> _CheckedOrder:
    order, view = sent.order.message, _view(context, sent)
    asked = _CheckedOrder(context, sent, request, offer, view)
    if context.store.known(asked.order_id):
        remedy = "GET /v1/orders/{id} shows how far it has come; for more, sign the next number."
        raise AlreadyOrdered("This order was taken before", "0x" + asked.order_id.hex(), remedy)
    _check_terms(order, request, offer)
    first = max(context.first, context.node_tabs.fence)
    if order.reference_block < first:
        raise BlockForgotten(order.reference_block, first)
    _check_order(sent, view, context.settled)
    _check_stake(context, order)
    _check_due(context, sent, offer)
    _check_money(context, sent, view)
    return asked


def _offer(context: SchedulerContext, order: Order) -> ClassOffer:
    offer = context.offers.offer(order.execution_class, context.ledger.state)
    if order.ends != pack_ends(offer.ends):
        raise OtherSplit(offer.ends, order.ends.hex())
    return offer


def _request(sent: Submission, offer: ClassOffer) -> Request:
    try:
        request = from_canonical_bytes(sent.request)
    except InvalidRequest as error:
        raise BadRequest(error.what, error.value, error.remedy) from error
    if request.execution_class != sent.order.message.execution_class:
        raise BadRequest("The request is for another class than the order", remedy="Sign an order for its class.")
    if request_hash(request, sent.salt) != sent.order.message.request_hash:
        raise BadRequest("The order was signed for another request", remedy="Hash what is sent, with the salt sent.")
    needed, context = len(request.prompt_tokens) + request.max_tokens, offer.served.context
    if needed > context:
        what = f"Prompt and max_tokens need {needed} positions, the context has {context}"
        raise PromptTooLong(what, remedy=f"Shorten them by {needed - context} tokens.")
    if request.highest_token >= offer.model.vocabulary:
        what = f"The vocabulary has {offer.model.vocabulary} tokens"
        raise TokenOutOfVocabulary(what, request.highest_token, "Use the tokenizer that this scheduler offers.")
    return request


def _require_grammar(request: Request, offer: ClassOffer) -> None:
    """Nodes would refuse it too, but only after they were drawn and promised their pay."""
    named = text_part(json.loads(offer.served.texts.config)).get("eos_token_id")
    own = set(named if isinstance(named, list) else [named]) - {None}
    if own and not own.issuperset(request.end_tokens):
        # Each other first one has a tokenizer read anew, here and at nodes, which takes up to seconds.
        remedy = "Name those of config.json."
        raise BadRequest("A text with a grammar ends with the model's own end tokens", request.end_tokens[:5], remedy)
    try:
        assert request.transforms.grammar is not None
        tokenizer, vocabulary = offer.served.texts.tokenizer, offer.model.vocabulary
        compiled(request.transforms.grammar, tokenizer, vocabulary, request.end_tokens)
    except InvalidGrammar as error:
        raise BadRequest(error.what, error.value, error.remedy) from error


def _view(context: SchedulerContext, sent: Submission) -> OrderView:
    try:
        scheduler_of(context.ledger.state, context.operator.address)
        return context.view(sent.order.message, sent.tab)
    except (InvalidOrder, InvalidField) as error:
        raise OrderInvalid.of(error) from error


def _check_terms(order: Order, request: Request, offer: ClassOffer) -> None:
    listed = offer.prices
    pairs = (
        (order.prompt_price, listed.prompt),
        (order.cached_price, listed.cached),
        (order.written_price, listed.written),
    )
    for paid, wanted in pairs:
        if paid < wanted:
            what = f"The price list asks {wanted} per 10^9 positions, the order pays {paid}"
            raise PriceTooLow(what, wanted - paid, "Sign an order with the prices of GET /v1/prices.")
    if order.node_share < listed.node_share:
        what = f"Nodes get {listed.node_share} basis points here, the order gives them {order.node_share}"
        raise PriceTooLow(what, 0, "Sign an order with the node_share of GET /v1/prices.")
    count = len(request.prompt_tokens)
    most = prices.most(order, offer.rules, len(offer.spans), prompt=count, written=request.max_tokens)
    if order.max_fee < most:
        what = f"The answer may cost {most}, the order bounds it at {order.max_fee}"
        raise PriceTooLow(what, most - order.max_fee, f"Sign an order with max_fee {most}, or a smaller max_tokens.")


def _check_order(sent: Submission, view: OrderView, settled: int) -> None:
    block = sent.order.message.reference_block
    if block < view.block - view.reference_age:
        raise BlockTooOld(block, view.block, view.reference_age)
    if settled and block > view.block - 1 - settled:
        raise BlockTooYoung(block, view.block, settled)
    try:
        life.validate_order(sent.order, view)
    except InvalidSignature as error:
        raise BadSignature(error.what, None, error.remedy) from error
    except ProtocolError as error:
        raise OrderInvalid.of(error) from error


def _check_stake(context: SchedulerContext, order: Order) -> None:
    """What is open at once, and could be cheated with at once, stays below what this scheduler can lose.

    The factor is that of the classes' own inequality: what is lost is at least 3/2 of what could be gained.
    """
    stake = context.ledger.state.pot(PotKind.STAKE, context.operator.address)
    opened = context.client_tabs.exposure + order.max_fee
    if LOSS_TIMES * stake < GAIN_TIMES * opened:
        # Clients that never come back acknowledge nothing: added up only where it matters, over all their tabs.
        opened = context.client_tabs.at_stake(context.ledger.state) + order.max_fee
    if LOSS_TIMES * stake < GAIN_TIMES * opened:
        what = f"Orders worth {opened} would be open, more than a stake of {stake} covers"
        raise StakeExhausted(what, remedy="Try again when others are acknowledged, or order elsewhere.")


def _check_money(context: SchedulerContext, sent: Submission, view: OrderView) -> None:
    """What ``take_on`` will refuse for want of money, said with the shortfall."""
    order, state = sent.order.message, view.tab_state
    if not state.known or state.closes_at:
        what = "The tab is closing" if state.known else "There is no such tab on this chain"
        raise TabNotOpen(what, "0x" + order.tab.hex(), "Open a tab with this scheduler, or order on another one.")
    _check_claims(context, sent)
    book = context.client_tabs.book(order.tab)
    spent = max(book.best.spent, sent.voucher.message.spent)
    shortfall = spent + book.left_by(sent.voucher.message) + order.max_fee - (state.balance + state.redeemed)
    if shortfall > 0:
        what = f"The tab covers {state.balance + state.redeemed}, and {shortfall} are missing"
        raise TabTooSmall(what, shortfall, f"Top the tab up by {shortfall}, or acknowledge what was answered.")


def _check_claims(context: SchedulerContext, sent: Submission) -> None:
    """What claims were paid is acknowledged. Else each later claim would show it again, until the court hears its draw
    no more (``court.answer_age``), and whatever was answered since would fall with it.
    """
    record = context.ledger.state.tabs[sent.order.message.tab]
    paid, said = record.redeemed - record.forgiven, sent.voucher.message.spent
    if paid > said:
        what = f"Claims were paid from this tab: {paid} in all, and the voucher acknowledges {said}"
        remedy = "Acknowledge what was claimed, which costs nothing more, or use another tab."
        raise ClaimsUnacknowledged(what, said, remedy)


def _check_due(context: SchedulerContext, sent: Submission, offer: ClassOffer) -> None:
    tolerated = TOLERATED_CAPS * offer.rules.fee_cap
    worth = overdue(context, sent.voucher.message, tolerated=tolerated)
    if worth > tolerated:
        what = f"Answers worth {worth} are long due on this tab, and the voucher does not acknowledge them"
        raise AnswersUnacknowledged(what, worth, "Acknowledge what was answered, or use another tab.")


def _draw(asked: _CheckedOrder) -> _DrawnNodes:
    secret = asked.context.vrf_secret
    if vrf.public_key(secret) != asked.view.vrf_key:
        raise GroupTooSmall("This scheduler's VRF key is not the registered one", None, "Order elsewhere.")
    proof = vrf.prove(secret, messages.infer_alpha(asked.order_id))
    beta = Hash32(vrf.output_of_sound(proof))
    try:
        return _DrawnNodes(proof, checks.drawn_candidates(asked.order, beta, asked.view))
    except InvalidDrawRequest as error:
        raise GroupTooSmall(error.what, error.value, error.remedy) from error


def _choose(asked: _CheckedOrder, drawn: _DrawnNodes, preferred: Sequence[Address]) -> tuple[Address, ...]:
    context, paid = asked.context, []
    for segment, candidates in enumerate(drawn.candidates):
        prices_of = ((node, _tab_state(context, node), _most(asked, node, segment)) for node in candidates)
        covered = [node for node, state, price in prices_of if context.node_tabs.covers(node, price, state)]
        if not covered:
            what = f"No node that was drawn for segment {segment} has a tab that pays it"
            raise NodeUnpaid(what, remedy="Try again in a minute: tabs with nodes are opened and topped up.")
        trusted = [node for node in covered if context.reputation(node) >= LEAST_REPUTATION]
        if not trusted:
            what = f"The committee rates all nodes that were drawn for segment {segment} below its bar"
            raise NodeUntrusted(what, covered, "Order again: each order draws anew.")
        sound = [node for node in trusted if not context.ledger.state.is_void(node, asked.order.reference_block)]
        # A convict's answer is worth nothing to its client, and was drawn from the group as it stood before.
        paid.append(sound or trusted)
    nodes = choose(context, asked.wanted, paid, preferred)
    context.peers.note_draw({node for candidates in drawn.candidates for node in candidates}, nodes)
    return nodes


def _tab_state(context: SchedulerContext, node: Address) -> TabState:
    return context.ledger.state.tab_state(messages.tab_id(context.node_tabs.tab(node)))


def _ask(asked: _CheckedOrder, node: Address, segment: int) -> Ask:
    return asked.view.groups[segment].ask_at(node, asked.order.reference_block)


def _most(asked: _CheckedOrder, node: Address, segment: int) -> int:
    """What a node may earn at most with this order: its ask at the order's block, nothing cached."""
    ask, request = _ask(asked, node, segment), asked.request
    work = max(ask.prompt, ask.cached) * len(request.prompt_tokens) + ask.written * request.max_tokens
    return max(-(-work // prices.PER), 1)


# ------------------------------------------------------------------------------------------------------- what is signed


async def _take(asked: _CheckedOrder, nodes: tuple[Address, ...], proof: bytes) -> OrderSession:
    """Enter the order into all books at once, sign, journal. Nothing waits between the books and the disk."""
    context, sent, order = asked.context, asked.sent, asked.order
    used, statements = _enter(asked)
    try:
        promises, promised = _promises(asked, nodes)
    except BaseException:
        context.client_tabs.withdraw(order.tab, order.sequence)
        raise
    named = Admission(asked.order_id, messages.nodes_hash(nodes), asked.view.block)
    admitted = AdmittedStep(
        order=sent.order,
        tab=sent.tab,
        voucher=used,
        admission=context.signed(named),
        nodes=nodes,
        infer_proof=proof,
        promises=promises,
        head_salt=Hash32(randomness.token_bytes(32)),
    )
    history = OrderHistory(named.order, admitted, sent.request, sent.salt)
    try:
        await context.store.begin(history, *statements, *promised)
    except StorageFailed:
        context.client_tabs.withdraw(order.tab, order.sequence)
        _withdraw(context, nodes, promises)
        raise
    alternatives = NO_LOGPROBS if sent.logprobs is None else min(sent.logprobs, ALTERNATIVES_LIMIT)
    return OrderSession(history, asked.request, sent.salt, asked.offer, alternatives)


def _enter(asked: _CheckedOrder) -> tuple[Signed[Voucher], list[Statement]]:
    forgiven = forgive_fallen(asked.context, asked.order.tab)
    try:
        used, taken = asked.context.client_tabs.take_on(asked.order, asked.sent.voucher, asked.view)
        return used, [*forgiven, *taken]
    except InvalidSignature as error:
        raise BadSignature(error.what, None, error.remedy) from error
    except InvalidVoucher as error:
        raise VoucherRefused(error.what, str(error.value)[:200], error.remedy) from error


def _promises(asked: _CheckedOrder, nodes: Sequence[Address]) -> tuple[tuple[Signed[Promise], ...], list[Statement]]:
    context = asked.context
    made: list[Signed[Promise]] = []
    statements: list[Statement] = []
    for segment, node in enumerate(nodes):
        try:
            context.node_tabs.require_heard(node)
            promised, more = context.node_tabs.promise(node, _wanted(asked, node, segment), _tab_state(context, node))
        except InvalidVoucher as error:
            _withdraw(context, nodes, made)
            raise NodeUnpaid(error.what, node, "Try again in a minute: tabs with nodes are topped up.") from error
        made.append(promised)
        statements += more
    return tuple(made), statements


def _withdraw(context: SchedulerContext, nodes: Sequence[Address], made: Sequence[Signed[Promise]]) -> None:
    for node, promised in zip(nodes, made, strict=False):
        context.node_tabs.withdraw(node, promised.message.sequence)


def _wanted(asked: _CheckedOrder, node: Address, segment: int) -> Callable[[Hash32, int], Promise]:
    ask, price = _ask(asked, node, segment), _most(asked, node, segment)
    order_id, block = asked.order_id, asked.order.reference_block

    def make(tab: Hash32, number: int) -> Promise:
        asks = (ask.prompt, ask.cached, ask.written)
        return Promise(tab, number, order_id, segment, WorkKind.INFERENCE, block, *asks, price)

    return make
