"""A node's seat in an order on tabs: what papers give it, checked against the node's own view of the chain.

Nothing is computed before these checks pass. All of them are pure and may take milliseconds (proofs and draws), so they
run in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from troth.node.errors import NotAssigned
from troth.protocol import vrf
from troth.protocol.identifiers import group_id
from troth.protocol.market import checks, life, messages, prices
from troth.protocol.market.ballots import is_veiled
from troth.protocol.market.checks import OrderView
from troth.protocol.market.court import last_case_block, last_opening_block
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidPromise
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.papers import CheckPapers, InferencePapers, Pay, drawn_seats
from troth.protocol.market.rows import travel_as_hashes
from troth.protocol.market.signed import Order, Promise, Result, Work
from troth.protocol.market.state import State
from troth.protocol.market.types import NO_ADDRESS, Ask, ExecutionClass, Rules, Tab, TabState
from troth.protocol.market.views import class_of, parameters_of, silent_of, view_of
from troth.protocol.request import Request, from_canonical_bytes, request_hash
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import noise_seed
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment


@dataclass(frozen=True, slots=True)
class Post:
    """What this node offers, where it stands and who asks: all that papers are checked against."""

    me: Address
    sender: Address
    execution_class: Hash32
    position_limit: int
    state: State
    chain_id: int
    block: int
    now: int
    key_check: KeyCheck = signed_by_account
    first: int = 0
    """The oldest reference block of an order that this node takes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """This node's part in one segment of one order. ``papers`` and ``results`` are there for who checks.

    ``before``: who may infer the segment before this one, for who infers; ``nodes`` may hide which of them does.
    """

    order: Order
    order_id: Hash32
    tab: Tab
    index: int
    me: Address
    infers: bool
    nodes: tuple[Address, ...]
    segments: tuple[Segment, ...]
    execution_class: ExecutionClass
    descriptor: ModelDescriptor
    rules: Rules
    promise: Signed[Promise]
    head_salt: Hash32
    noise_seed: Hash32
    ordered: Request | None
    ordered_salt: Hash32 | None
    papers: CheckPapers | None = None
    results: tuple[Result, ...] = ()
    before: tuple[Address, ...] = ()

    @property
    def task_id(self) -> Hash32:
        """The order's id, which names its traces and caches."""
        return self.order_id

    @property
    def layers(self) -> Segment:
        """The layers of the segment."""
        return self.segments[self.index]

    @property
    def dtype(self) -> Dtype:
        """Words of the rows."""
        return Dtype(self.execution_class.dtype)

    @property
    def is_first(self) -> bool:
        """The segment reads tokens."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """The segment ends in the head."""
        return self.index == len(self.segments) - 1

    @property
    def sends_hashes(self) -> bool:
        """Row hashes travel in place of rows, and no rows are kept."""
        return travel_as_hashes(exact=self.execution_class.exact, segments=len(self.segments))

    @property
    def scheduler(self) -> Address:
        """Who may send messages about the order."""
        return self.tab.payee

    @property
    def role(self) -> str:
        """As messages name it."""
        return "infer" if self.infers else "check"

    @property
    def result(self) -> Result:
        """The inferencer's result that a verifier checks."""
        return self.results[self.index]

    @property
    def request(self) -> Request:
        """What was ordered; parties of the first and last segment have it."""
        if self.ordered is None:
            raise NotAssigned("this segment was not shown the request", self.index, "Send it beside the papers.")
        return self.ordered

    @property
    def prompt_positions(self) -> int:
        """Of the prompt, as the result says that is checked; who has the request has compared them."""
        return self.result.prompt + self.result.cached

    @property
    def salt(self) -> Hash32:
        """The request's salt; comes with the request."""
        if self.ordered_salt is None:
            raise NotAssigned("this segment was not shown the request", self.index, "Send it beside the papers.")
        return self.ordered_salt


def infer_seat(papers: InferencePapers, index: int, request: bytes, post: Post) -> Assignment:
    """The seat that papers give an inferencer.

    Raises a MarketError, NotAssigned or InvalidSignature naming the first thing that does not hold.
    """
    order, tab = papers.order.message, papers.tab
    _require(post.sender == tab.payee, "another scheduler's order", tab.payee, "Send your own orders.")
    _require_class(order, post)
    _require_recorded(order, post)
    view = view_of(
        post.state, order, tab, chain_id=post.chain_id, block=post.block, time=post.now, key_check=post.key_check
    )
    life.validate_order(papers.order, view)
    _require_money(order, view.tab_state)
    drawn = _require_admission(papers, index, view, post)
    _require(index < len(papers.nodes), "there is no such segment", index)
    _require(papers.nodes[index] == post.me, "another node was admitted for this segment", papers.nodes[index])
    text = _request_of(order, papers.salt, request, index in {0, len(papers.nodes) - 1})
    _require_own_tab(papers.pay, papers.tab.payee, post)
    seat = _seat(papers, index, view, post, text=text, promise=papers.pay.promise)
    _require_servable(seat, post)
    _require_promise(seat, view, post)
    return replace(seat, before=drawn[index - 1] if index else ())


def check_seat(papers: CheckPapers, index: int, request: bytes, post: Post) -> Assignment:
    """The seat that papers give a verifier; raises as ``infer_seat``."""
    order, pay = papers.order.message, papers.pay
    _require(post.sender == papers.tab.payee, "another scheduler's order", papers.tab.payee, "Send your own orders.")
    _require_class(order, post)
    _require_recorded(order, post)
    drawn = drawn_check(papers, post)
    _require(index < len(drawn.seats), "there is no such segment", index)
    seats = drawn.seats[index].seats.get(post.me, 0)
    _require(seats > 0, "this node was not drawn to check this segment", post.me, "Ask the nodes that were drawn.")
    if pay is None:
        raise InvalidPromise("A verifier is paid, and these papers promise nothing", index, "Send a promise.")
    _require_own_tab(pay, papers.tab.payee, post)
    least = prices.check_reward(drawn.view.rules, prices.positions(drawn.results[index])) * seats
    checks.require_promise(order, pay.promise, segment=index, work=Work.CHECK, least=least, view=drawn.view)
    text = _request_of(order, papers.salt, request, index in {0, len(papers.nodes) - 1})
    seat = _seat(papers, index, drawn.view, post, text=text, promise=pay.promise, check=papers, results=drawn.results)
    _require_servable(seat, post)
    return seat


# ------------------------------------------------------------------------------------------------------ drawn to check


@dataclass(frozen=True, slots=True)
class DrawnCheck:
    """A check that the client's secret drew: who checks what."""

    view: OrderView
    order_id: Hash32
    results: tuple[Result, ...]
    seats: tuple[DrawnSeats, ...]


def drawn_check(papers: CheckPapers, post: Post) -> DrawnCheck:
    """The check that papers show, once everything up to the draw of its verifiers holds.

    The order was valid when it was admitted: what time has made of it since is no reason not to check it. Raises a
    MarketError or InvalidSignature.
    """
    order, admitted = papers.order.message, papers.admission.message.block_number
    _require_recent(papers, post)
    view = view_of(
        post.state,
        order,
        papers.tab,
        chain_id=post.chain_id,
        block=max(admitted, order.reference_block + 1),
        time=min(post.now, order.deadline),
        key_check=post.key_check,
        leaving=True,
    )
    life.validate_order(papers.order, view)
    order_id = messages.order_id(order, view.domain)
    silent = silent_of(post.state, order_id, len(papers.results))
    return DrawnCheck(view, order_id, *drawn_seats(papers, view, silent))


def _require_recorded(order: Order, post: Post) -> None:
    what = f"this node's records begin later, and may lack what it signed of this order: from block {post.first} on"
    _require(order.reference_block >= post.first, what, order.reference_block, "Order again with a newer block.")


def _require_recent(papers: CheckPapers, post: Post) -> None:
    """Blocks that this node has seen, and no check of an answer that no court hears any more.

    A scheduler may sign a draw anew at any time: beyond what the court hears for an order's block, this node has
    forgotten what it committed to, and would commit to another trace.
    """
    drawn = papers.draw.message.block_number
    admitted = papers.admission.message.block_number
    _require(max(drawn, admitted) <= post.block, "this node has not seen the draw's block", drawn, "Retry in a moment.")
    parameters = parameters_of(post.state)
    last = min(last_opening_block(drawn, parameters), last_case_block(papers.order.message.reference_block, parameters))
    _require(post.block <= last, f"no court hears of this answer since block {last}", drawn, "Acknowledge it.")


# ------------------------------------------------------------------------------------------------------------ its parts


def _seat(
    papers: InferencePapers | CheckPapers,
    index: int,
    view: OrderView,
    post: Post,
    *,
    text: Request | None,
    promise: Signed[Promise],
    check: CheckPapers | None = None,
    results: tuple[Result, ...] = (),
) -> Assignment:
    order = papers.order.message
    execution_class, descriptor = class_of(post.state, order.execution_class)
    order_id = messages.order_id(order, view.domain)
    return Assignment(
        order=order,
        order_id=order_id,
        tab=papers.tab,
        index=index,
        me=post.me,
        infers=check is None,
        nodes=papers.nodes,
        segments=view.segments(order),
        execution_class=execution_class,
        descriptor=descriptor,
        rules=view.rules,
        promise=promise,
        head_salt=papers.head_salt,
        noise_seed=noise_seed(order_id, Hash32(vrf.proof_to_hash(papers.infer_proof))),
        ordered=text,
        ordered_salt=papers.salt if text is not None else None,
        papers=check,
        results=results,
    )


def _require_class(order: Order, post: Post) -> None:
    _require(order.execution_class == post.execution_class, "another class is served here", order.execution_class)


def _require_admission(
    papers: InferencePapers, index: int, view: OrderView, post: Post
) -> tuple[tuple[Address, ...], ...]:
    """Who may infer each segment, once this node was admitted, or drawn where its class hides who was admitted."""
    order = papers.order.message
    if NO_ADDRESS not in papers.nodes:
        return checks.require_admission(order, papers.admission, papers.nodes, papers.infer_proof, view)
    definition, _ = class_of(post.state, order.execution_class)
    _require(is_veiled(definition.name), "papers of this class name all nodes", definition.name, "Name them.")
    _require(len(papers.nodes) == len(view.segments(order)), "there is a place for each segment", len(papers.nodes))
    return checks.require_own_place(order, papers.admission, (index, post.me), papers.infer_proof, view)


def _require_money(order: Order, tab: TabState) -> None:
    """The client's tab holds what the order may cost: else the scheduler could not pay either."""
    what = "the client's tab does not cover this order"
    covered = tab.known and not tab.closes_at and tab.balance >= order.max_fee
    _require(covered, what, (tab.balance, order.max_fee), "Let the client top its tab up, or open one.")


def _require_own_tab(pay: Pay, scheduler: Address, post: Post) -> None:
    """The promise is on the tab of this scheduler with this node: its operator is payer and key, or no claim stands."""
    tab = Tab(payer=scheduler, payee=post.me, key=scheduler)
    what = "The promise is not on the tab of this scheduler with this node"
    if pay.tab != tab or pay.promise.message.tab != messages.tab_id(tab):
        raise InvalidPromise(what, pay.tab, "Promise on the tab whose payer and key are the scheduler's operator.")


def _request_of(order: Order, salt: Hash32 | None, data: bytes, shown: bool) -> Request | None:
    if not shown:
        _require(not data, "this segment is not shown the request", len(data), "Send it to the first and last only.")
        return None
    _require(bool(data) and salt is not None, "the request or its salt is missing", None, "Send both with the papers.")
    assert salt is not None
    request = from_canonical_bytes(data)
    same = request_hash(request, salt) == order.request_hash and request.execution_class == order.execution_class
    _require(same, "this is not the request that was ordered", order.request_hash, "Send the client's request.")
    return request


def _require_servable(seat: Assignment, post: Post) -> None:
    """Raise NotAssigned unless this node can serve what was ordered, where it is shown the request."""
    if seat.ordered is None:
        return
    longest = seat.ordered.position_limit
    _require(longest <= post.position_limit, "the request is too long for this node", longest, "Order fewer tokens.")
    highest = seat.ordered.highest_token
    _require(highest < seat.descriptor.vocabulary, "a token is outside of the vocabulary", highest, "Fix the request.")


def _require_promise(seat: Assignment, view: OrderView, post: Post) -> None:
    """The promise pays what this node asks, for the longest answer that the request allows where that is known."""
    least = 1
    if seat.ordered is not None:
        least = max(worth_of(seat, len(seat.ordered.prompt_tokens), seat.ordered.max_tokens), 1)
    promised = checks.require_promise(
        seat.order, seat.promise, segment=seat.index, work=Work.INFERENCE, least=least, view=view
    )
    group = group_id(seat.order.execution_class, seat.layers)
    own = post.state.ask_at(group, post.me, seat.order.reference_block)
    if not prices.within(own, Ask(promised.prompt_ask, promised.cached_ask, promised.written_ask)):
        raise InvalidPromise("The promise pays less than this node asks", own, "Promise the node's ask of that block.")


def worth_of(seat: Assignment, prompt: int, written: int) -> int:
    """What the promise's prices make of so many positions, whatever it promises at most."""
    blank = Hash32(bytes(32))
    counted = Result(seat.order_id, seat.index, blank, blank, prompt, 0, written, blank, blank)
    unbound = replace(seat.promise.message, price=(1 << 96) - 1)
    return prices.promise_worth(unbound, counted)


def _require(condition: bool, what: str, value: object, remedy: str = "Choose another node.") -> None:
    if not condition:
        raise NotAssigned(what, value, remedy)
