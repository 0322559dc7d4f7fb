"""The life of a request, from its order to an acknowledgement or an outcome, in one function.

``live`` states the protocol. It takes what the parties have sent each other and one party's own view of the chain, and
runs every rule in its order; each step names the rule of the market that it is. Client, scheduler, node and auditor
call the same checks as their parts arrive. It ends in one of four ways: the client acknowledges the answer, somebody is
summoned for what is owed, a rejection is due in court, or the court has decided. Whatever does not hold raises a
MarketError (or InvalidSignature) that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.market import checks, court, court_money, lottery, messages, prices, tabs
from troth.protocol.market.checks import Answer, Opened, OrderView
from troth.protocol.market.court import CaseFinding, Hearing
from troth.protocol.market.court_money import Circumstances
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidCase, InvalidOrder, InvalidVoucher
from troth.protocol.market.messages import Signed
from troth.protocol.market.prices import BASIS_POINTS, MILLION
from troth.protocol.market.proceedings import CaseState, Outcome, SummonsKind
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
from troth.protocol.market.tabs import PayeeBook
from troth.protocol.market.types import Movement, Voucher
from troth.protocol.types import Address, Hash32

# ------------------------------------------------------------------------------------------------ what was sent so far


@dataclass(frozen=True, slots=True)
class Check:
    """What was sent in the check of one segment; ``node`` None: the node opened nothing."""

    promises: Mapping[Address, Signed[Promise]]
    commitments: Mapping[Address, Signed[TraceCommitment]]
    verdicts: Mapping[Address, Signed[Verdict]]
    node: Opened | None
    opened: Mapping[Address, Opened]


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A case over one segment, as far as the chain shows it."""

    state: CaseState
    randao: Hash32
    hearing: Hearing
    around: Circumstances


@dataclass(frozen=True, slots=True)
class Journey:
    """All that was sent about one order; what has not come is None. ``book`` is the scheduler's before the order.

    ``silent``: by segment, the nodes that a summons of its check proved silent.
    """

    order: Signed[Order]
    voucher: Signed[Voucher]
    book: PayeeBook
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    promises: tuple[Signed[Promise], ...]
    results: tuple[Signed[Result], ...] | None = None
    answer: Answer | None = None
    draw: Signed[Draw] | None = None
    draw_proof: bytes = b""
    seen_at: int = 0
    secret: Hash32 | None = None
    second_secret: Hash32 | None = None
    checks: tuple[Check, ...] | None = None
    silent: Mapping[int, tuple[Address, ...]] = field(default_factory=dict)
    case: CaseFile | None = None


# -------------------------------------------------------------------------------------------------------- how it ends


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The client pays ``fee`` from block ``due`` on; at once if the answer was checked."""

    fee: int
    due: int
    checked: bool


@dataclass(frozen=True, slots=True)
class SummonsNeeded:
    """Something is owed and has not come: whoever waits for it asks on chain, and silence convicts."""

    kind: SummonsKind


@dataclass(frozen=True, slots=True)
class Rejected:
    """A majority of drawn verifiers rejected these segments: anyone who holds the evidence opens a case."""

    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """The court has decided over one segment; outcome NONE: it draws reviewers once more.

    Other segments' nodes stay payable whatever it says.
    """

    segment: int
    finding: CaseFinding
    movements: tuple[Movement, ...]


Ending = Acknowledged | SummonsNeeded | Rejected | Decided


# ------------------------------------------------------------------------------------------------------- the statement


def live(journey: Journey, view: OrderView) -> Ending:
    """The life of a request. Raises a MarketError or InvalidSignature naming the first rule that does not hold."""
    # (1) A request, 1: the client orders. Class, prices, bound, time, two secrets, one signature by the tab key.
    order = validate_order(journey.order, view)
    # (2) Money, tab: the voucher beside it authorises the order; the deposits cover what is owed and outstanding.
    take_on(journey.book, order, journey.voucher, view)
    # (3) A request, 1 and 2: the scheduler admits it and names, for each segment, a node that its VRF drew.
    checks.require_admission(order, journey.admission, journey.nodes, journey.infer_proof, view)
    # (4) A request, 3: each node has a promise before it computes, so that a break-off is paid.
    for segment, promised in enumerate(journey.promises):
        checks.require_promise(order, promised, segment=segment, work=Work.INFERENCE, least=1, view=view)
    # (5) A request, 4: the answer streams; each node signs its result. An admitted order without results is summoned.
    if journey.results is None or journey.answer is None or journey.draw is None:
        return SummonsNeeded(SummonsKind.RESULTS)
    results = checks.require_results(order, journey.results, journey.nodes, view)
    checks.require_answer(results, journey.answer)
    # (6) A request, 5: the scheduler signs beta over exactly these results, and a fresh block from which the lag runs.
    beta = checks.require_draw(order, journey.draw, results, journey.draw_proof, seen_at=journey.seen_at, view=view)
    fee = prices.fee(order, view.rules, len(results), results[-1])
    due = journey.draw.message.block_number + view.lag
    # (7) A request, 5: the client shows its secret; keccak(secret, beta) < q decides. Never shown: undrawn.
    #     Any client may still doubt an answer of its own in court.
    if journey.secret is None or not lottery.is_drawn(order, journey.secret, beta):
        if journey.case is not None:
            return decide_case(order, journey.case, None, view)
        return Acknowledged(fee, due, checked=False)
    # (8) A request, 6 and 7: verifiers follow from secret, beta and results. A check that does not come is summoned.
    if journey.checks is None or journey.second_secret is None:
        return SummonsNeeded(SummonsKind.CHECK)
    lottery.require_tiles_secret(order, journey.second_secret)
    drawn = checks.verifiers(
        order, results, journey.secret, beta, nodes=journey.nodes, view=view, silent=journey.silent
    )
    # (9) A request, 6: commitments before rows, tiles from the second secret, openings compared; k seats decide.
    said = tuple(
        verify_check(order, result, check, drawn=seats, second_secret=journey.second_secret, view=view)
        for result, seats, check in zip(results, drawn, journey.checks, strict=True)
    )
    # (10) The court: a case that was opened is decided by reviewers of the order's block, drawn by a later RANDAO.
    if journey.case is not None:
        return decide_case(order, journey.case, said[journey.case.state.segment], view)
    # (11) A request, 7: a rejection goes to court, by its verifiers, the client, or whoever holds the receipt.
    rejected = tuple(segment for segment, opinion in enumerate(said) if opinion is Opinion.REJECT)
    if rejected:
        return Rejected(rejected)
    # (12) Money, lag: all agree, so the client acknowledges at once; without a majority for it, after the lag.
    checked = all(opinion is Opinion.ACCEPT for opinion in said)
    return Acknowledged(fee, journey.draw.message.block_number if checked else due, checked)


# ------------------------------------------------------------------------------------------------------------ its steps


def validate_order(signed: Signed[Order], view: OrderView) -> Order:
    """The order, if its class, its terms, the time and its tab key support it; else raises InvalidOrder."""
    order = signed.message
    if order.tab != messages.tab_id(view.tab) or order.execution_class != view.execution_class:
        raise InvalidOrder("The order is for another tab or class", order.tab, "Order on a tab with this scheduler.")
    try:
        segments = view.segments(order)
    except InvalidField as error:
        raise InvalidOrder(error.what, order.ends, error.remedy) from error
    if len(segments) != len(view.groups):
        raise InvalidOrder("Each segment has a group", (len(segments), len(view.groups)), "Read the order's groups.")
    _validate_terms(order, view)
    _validate_time(order, view)
    if not view.key_check(view.tab.key, messages.order_id(order, view.domain), signed.signature):
        raise InvalidSignature("The tab key did not sign this order", signed.signature, messages.BY_ACCOUNT)
    return order


def _validate_terms(order: Order, view: OrderView) -> None:
    if not view.rules.least_check_rate <= order.check_rate <= MILLION:
        what = f"The check rate is {view.rules.least_check_rate} to {MILLION} millionths in this class"
        raise InvalidOrder(what, order.check_rate, "Order at least the class's rate: its penalty is made for it.")
    if not 0 < order.max_fee <= view.rules.fee_cap:
        what = f"An order of this class costs 1 to {view.rules.fee_cap}"
        raise InvalidOrder(what, order.max_fee, "Ask for a shorter answer: the penalty is made for this cap.")
    if order.node_share > BASIS_POINTS:
        what = f"Nodes' share of the price is at most {BASIS_POINTS} basis points"
        raise InvalidOrder(what, order.node_share, "Lower the share.")
    if order.draw_hash == order.tiles_hash:
        # Else the first secret, which is shown before the verifiers commit, would already name the tiles.
        raise InvalidOrder("Both secrets of the order are the same", order.draw_hash, "Draw two fresh secrets.")
    if order.sequence == 0:
        raise InvalidOrder("Orders are numbered from 1", order.sequence, "Number the order after its tab's last one.")


def _validate_time(order: Order, view: OrderView) -> None:
    if view.time > order.deadline:
        raise InvalidOrder(f"It is {view.time}, after the order's deadline", order.deadline, "Order again.")
    oldest = view.block - view.reference_age
    if not oldest <= order.reference_block < view.block:
        what = f"The reference block lies between {oldest} and {view.block - 1}"
        raise InvalidOrder(what, order.reference_block, "Order again with a recent block.")


def take_on(book: PayeeBook, order: Order, voucher: Signed[Voucher], view: OrderView) -> PayeeBook:
    """The scheduler's book with the order and the voucher beside it; raises InvalidVoucher where they do not pay it."""
    digest = messages.signing_digest(voucher.message, view.domain)
    if not view.key_check(view.tab.key, digest, voucher.signature):
        raise InvalidSignature("The tab key did not sign this voucher", voucher.signature, messages.BY_ACCOUNT)
    if voucher.message.tab != order.tab:
        raise InvalidVoucher("The voucher is for another tab", voucher.message.tab, "Sign one for the order's tab.")
    return tabs.admit(tabs.accept(book, voucher.message), order.sequence, order.max_fee, view.tab_state)


def verify_check(
    order: Order, result: Result, check: Check, *, drawn: DrawnSeats, second_secret: Hash32, view: OrderView
) -> Opinion:
    """What a majority of drawn seats says of one segment, once openings bear it out; raises InvalidCheck."""
    reward = prices.check_reward(view.rules, prices.positions(result))
    for verifier, promised in check.promises.items():
        least = reward * drawn.seats.get(verifier, 0)
        checks.require_promise(order, promised, segment=result.segment, work=Work.CHECK, least=least, view=view)
    opinions = checks.require_verdicts(result, check.verdicts, check.commitments, drawn, view)
    committed = [check.commitments[node].message.commitment for node in drawn.seats if node in check.commitments]
    tiles = () if view.rules.exact else checks.check_tiles(second_secret, committed, result, view.rules)
    if check.node is not None:
        checks.require_node_opening(check.node, result, tiles, view.rules)
    opened = checks.proper_openings(check.opened, check.commitments, result, tiles, view.rules)
    return checks.majority(drawn, checks.honest_opinions(opinions, check.node, opened, view.rules))


def may_withhold(case: CaseState, order: Hash32, node: Address, segment: int) -> bool:
    """Whether a payer may keep back a leaf that is due while this case runs.

    What is judged may wait for the judgement: whoever opened the case staked a bond on it. Beyond that only a case that
    suspends its node permits to withhold, and only what that node served; a rejection that nobody brought to the court
    permits nothing, since saying no is free. Other nodes' leaves are due as ever, those of the same order too.
    """
    judged = (case.order, case.segment) == (order, segment)
    return judged or (case.suspends and node == case.node)


def decide_case(order: Order, case: CaseFile, said: Opinion | None, view: OrderView) -> Decided:
    """The outcome of a case over one segment and the money that moves, for reviewers that the beacon drew."""
    state = case.state
    court.require_opener(state.kind, state.opener, view)
    if state.kind is not court.kind_of(said):
        what = f"A check that says {said!r} is no {state.kind.name.lower()}"
        raise InvalidCase(what, state.kind, "Open the case as what the verdicts are.")
    drawn = court.reviewers(order, state, case.randao, view)
    if drawn.seats != dict(zip(state.reviewers, state.seats, strict=True)):
        raise InvalidCase("The beacon draws other reviewers", state.reviewers, "Draw with the RANDAO that is due.")
    finding = court.judge(case.hearing, view.rules)
    if finding.outcome is Outcome.NONE and state.round % 2:
        finding = replace(finding, outcome=Outcome.UNDECIDED)
    return Decided(state.segment, finding, court_money.settle(state, finding, view.rules, case.around))
