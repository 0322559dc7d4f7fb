"""What clients do not acknowledge is claimed, and what nodes claim too much is objected to.

A claim's amounts are on disk before it is filed, since every place of its tree may be objected to, after a restart as
well. An objection is answered with the order, its results and a fresh draw.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

import msgspec

from troth.chain.errors import ChainRejected
from troth.chain.rounds import rounds
from troth.protocol.market import claims, leaves, messages
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.types import NO_ADDRESS, Claim, LeafKind, Tab
from troth.protocol.market.views import strikes_due
from troth.protocol.types import Hash32
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.drawing import fresh_draw
from troth.scheduler.tabs.client_tabs import ClientTab
from troth.scheduler.tabs.database import Statement
from troth.scheduler.tabs.fallen import fell
from troth.scheduler.tabs.money import ClientBooks
from troth.scheduler.tabs.node_tabs import NodeTab

log = logging.getLogger(__name__)

CLAIM_GAS = 110_000
"""Of a claim and its settlement."""
ANSWERED_TOGETHER = 64
"""Objections that are answered at once, those with the nearest deadline first."""
PATIENCE_LAGS = 3
"""Lags after its answer for which an order that is not acknowledged is waited for on an open tab."""
MOST_OBJECTIONS = 4
"""Open at once: each answered one tells what its number was claimed for, and one that stays open strikes the claim."""


async def claim_due(context: SchedulerContext, times: int) -> None:
    """File what is due; raises ChainError."""
    for filing in await filings(context, times):
        await context.database.commit(filing.kept)
        log.info("%d orders are claimed: %d", len(filing.amounts), filing.total)
        await _unless_refused(context, filing.call)


@dataclass(frozen=True, slots=True)
class Filing:
    """A claim that can be filed. ``kept`` is on disk before it is: every place of its tree may be objected to."""

    tab: Hash32
    amounts: dict[int, int]
    total: int
    call: PartCall
    kept: Statement


async def filings(books: ClientBooks, times: int, *, young: bool = False) -> list[Filing]:
    """What is worth ``times`` the gas of claiming it; ``young``: also what clients may still acknowledge."""
    found = []
    for held in books.client_tabs:
        found += _filings_of(books, held, times, young=young)
        await rounds.give_way()
    return found


def _filings_of(books: ClientBooks, held: ClientTab, times: int, *, young: bool) -> list[Filing]:
    record = books.ledger.state.tabs.get(messages.tab_id(held.tab))
    if record is None or record.claim is not None or held.best is None or not record.known:
        return []
    amounts = _claimable(books, held, closing=young or record.closes_at > 0)
    cost = CLAIM_GAS * books.ledger.parameters.gas_price // PER
    # A tab that closes is claimed for whatever is more than the gas: there is no other day.
    if _gain(books, held, sum(amounts.values())) <= cost * (min(times, 1) if record.closes_at else times):
        return []
    return _filing(books, held, amounts)


def _gain(books: ClientBooks, held: ClientTab, worth: int) -> int:
    """What claiming numbers of this worth pays above what redeeming pays.

    Owed is the largest sum that was ever shown: a number that a settled claim paid stays unacknowledged, and claiming
    it again brings only what was acknowledged since.
    """
    assert held.best is not None
    spent, state = held.best.message.spent, books.ledger.state.tab_state(messages.tab_id(held.tab))
    return min(spent + worth - max(state.redeemed, spent), state.balance)


def _claimable(books: ClientBooks, held: ClientTab, *, closing: bool) -> dict[int, int]:
    """Numbers with results that nobody acknowledged: all of a tab that closes, else those that are long due."""
    assert held.best is not None
    waited = books.ledger.block - PATIENCE_LAGS * books.ledger.parameters.lag
    found: dict[int, int] = {}
    for number in held.book.unpaid:
        worth, leaf = held.book.worth[number], held.leaves.get(number)
        if not worth or leaf is None or (not closing and leaf.block > waited):
            continue
        history = books.store.get(leaf.order)
        if history is None or history.answered is None or fell(books.ledger.state, history):
            continue
        found[number] = worth
    return claims.together(found, held.best.message)


def _filing(books: ClientBooks, held: ClientTab, amounts: dict[int, int]) -> list[Filing]:
    assert held.best is not None
    voucher, tab_id = held.best, messages.tab_id(held.tab)
    try:
        claim, _ = claims.claim_of(voucher.message, amounts)
    except InvalidClaim as error:
        log.error("what is owed on tab 0x%s cannot be claimed: %s", tab_id.hex(), error)
        return []
    kept = msgspec.msgpack.encode({str(number): str(amount) for number, amount in amounts.items()})
    row = ("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (claim.root, tab_id, kept))
    call = build(books.ledger.contracts, Part.BANK, "claim", held.tab, voucher.message, voucher.signature, claim)
    return [Filing(tab_id, amounts, claim.total, call, row)]


async def attend_claims(context: SchedulerContext) -> None:
    """Answer objections to own claims, and settle what stood; raises ChainError.

    What the chain refuses of one claim, such as a leaf that fell since, keeps no other claim waiting.
    """
    state, block, me = context.ledger.state, context.ledger.block, context.operator.address
    own = list[tuple[Tab, ClaimRecord]]()
    for record in state.tabs.values():
        await rounds.give_way()
        if record.tab.payee == me and record.claim is not None:
            own.append((record.tab, record.claim))
    asked = [
        (objection.deadline, tab, claim, number)
        for tab, claim in own
        for number, objection in claim.objections.items()
        if block <= objection.deadline
    ]
    # Not one a block: whoever asks for more than a window has blocks would have what was not shown in time struck.
    asked.sort(key=itemgetter(0))
    for start in range(0, len(asked), ANSWERED_TOGETHER):
        together = asked[start : start + ANSWERED_TOGETHER]
        answers = [_show(context, tab, claim, number) for _, tab, claim, number in together]
        for failed in await asyncio.gather(*answers, return_exceptions=True):
            if isinstance(failed, BaseException):
                raise failed
    for tab, claim in own:
        if not claim.objections and block >= claim.state.settles_at:
            await _unless_refused(context, build(context.ledger.contracts, Part.BANK, "settle", tab, claim.state))


async def _show(context: SchedulerContext, tab: Tab, claim: ClaimRecord, number: int) -> None:
    await _unless_refused(context, await _answer(context, tab, claim, number))


async def _unless_refused(context: SchedulerContext, call: PartCall | None, spends: int = 0) -> None:
    """Send a call about one claim; one that the chain refuses is told, and the others are not kept waiting."""
    if call is None:
        return
    try:
        block = await context.ledger.execute(call, spends)
    except ChainRejected as error:
        log.warning("%s was not sent: %s", call.call.function, error)
        return
    log.info("%s is in block %d", call.call.function, block)


async def _answer(context: SchedulerContext, tab: Tab, record: ClaimRecord, number: int) -> PartCall | None:
    """The call that shows a number; None where it cannot be shown any more."""
    amounts = _amounts(context, record.state.claim.root)
    call = None if amounts is None else answer_call(context, tab, record, number, amounts)
    if call is None:
        log.error("the objection to number %d of a claim cannot be answered: what it shows is lost", number)
    return call


def answer_call(
    context: SchedulerContext, tab: Tab, record: ClaimRecord, number: int, amounts: dict[int, int]
) -> PartCall | None:
    """The leaf of a number, or the emptiness of its place; None where the order behind it is not here."""
    claim = record.state.claim
    path = claims.build(claim.first, claim.last, amounts).path(number)
    amount, leaf = amounts.get(number, 0), b""
    if amount:
        history = context.store.by_number(messages.tab_id(tab), number)
        if history is None or history.answered is None or history.drawn is None:
            return None
        # Fresh: the payer, who may see these results for the first time, has its lottery and the court.
        draw = fresh_draw(context, history, history.drawn.proof)
        leaf = leaves.encode(leaves.order_leaf(history.admitted.order, tab, history.answered.results, draw))
    shown = (path.siblings, path.sums, leaf)
    contracts = context.ledger.contracts
    return build(contracts, Part.BANK, "answer", tab, record.state, number, LeafKind.ORDER, amount, *shown)


def _amounts(context: SchedulerContext, root: Hash32) -> dict[int, int] | None:
    rows = context.database.read("SELECT data FROM claims WHERE claim = ?", root)
    if not rows:
        return None
    kept = msgspec.msgpack.decode(rows[0][0], type=dict[str, str])
    return {int(number): int(amount) for number, amount in kept.items()}


async def attend_nodes_claims(context: SchedulerContext) -> None:
    """Object to claims above what is known to be owed, and strike those whose objections were not answered.

    Every objection to a claim that falls has a deposit of its own, which only a strike of its own brings back.
    """
    own = list[TabRecord]()
    for record in context.ledger.state.tabs.values():
        await rounds.give_way()
        if record.tab.payer == context.operator.address:
            own.append(record)
    # Not one after the other: of many false claims that are filed in one block the last ones would be paid.
    own.sort(key=lambda record: float("inf") if record.claim is None else record.claim.state.settles_at)
    looks = [_attend_nodes_claim(context, record) for record in own]
    for failed in await asyncio.gather(*looks, return_exceptions=True):
        if isinstance(failed, BaseException):
            raise failed


async def _attend_nodes_claim(context: SchedulerContext, record: TabRecord) -> None:
    block, claim = context.ledger.block, record.claim
    strikes = strikes_due(record, context.ledger.state, block)
    for claimed, number in strikes:
        strike = build(context.ledger.contracts, Part.BANK, "strike", record.tab, claimed, number)
        await _unless_refused(context, strike)
    window = context.ledger.parameters.answer_window
    if not strikes and claim is not None and block < claim.state.settles_at - window:
        await _object(context, record, claim)


async def _object(context: SchedulerContext, record: TabRecord, claim: ClaimRecord) -> None:
    held = context.node_tabs.held(record.tab.payee)
    worth = known_worth(held, claim)
    # A number that was acknowledged since the claim's voucher is in what was spent: owed is never both.
    excess = claim.state.owed - held.book.spent - sum(worth.values())
    if excess <= 0 or len(claim.objections) >= MOST_OBJECTIONS:
        return
    asked, most = {*claim.objections, *claim.answered}, await context.ledger.objection_deposit()
    left = [number for number in places_of(claim.state.claim, worth) if number not in asked]
    for count, number in enumerate(left[: MOST_OBJECTIONS - len(claim.objections)], len(asked) + 1):
        if number not in worth and excess <= count * most:
            log.warning("%d units of a claim of %s are hidden, less than finding them costs", excess, record.tab.payee)
            return
        log.warning("number %d of a claim of %s is objected to", number, record.tab.payee)
        deposit = _own_deposit(context, record, claim, most)
        value = deposit if context.ledger.parameters.asset == NO_ADDRESS else 0
        call = build(context.ledger.contracts, Part.BANK, "object", record.tab, claim.state, number, value=value)
        await _unless_refused(context, call, deposit)


def _own_deposit(context: SchedulerContext, record: TabRecord, claim: ClaimRecord, deposit: int) -> int:
    """What this scheduler adds to an objection; 0 where the tab holds it beside what is claimed and authorised.

    Else a node that claims all that its tab holds could not be objected to, and one that answers every objection would
    take from the tab what covers this scheduler's promises: a claim that is not covered convicts it.
    """
    held = context.ledger.state.tab_state(messages.tab_id(record.tab))
    owed = max(claim.state.owed, context.node_tabs.held(record.tab.payee).book.authorised)
    return 0 if held.balance >= max(owed - held.redeemed, 0) + deposit else deposit


def places_of(claim: Claim, worth: Mapping[int, int]) -> list[int]:
    """Every place of a claim's tree, what is worth least first: a sum can be hidden beside the claimed numbers, too."""
    size = 1 << claims.depth_of(claim.first, claim.last)
    beside = (number for number in range(claim.first, claim.first + size) if number not in worth)
    return [*sorted(worth, key=lambda one: worth[one]), *beside]


def known_worth(held: NodeTab, claim: ClaimRecord) -> dict[int, int]:
    """What each claimed number can be worth: its fee by this scheduler's books, or its bound while that is open.

    An open number that was shown on chain is worth what it was shown for.
    """
    one = claim.state.claim
    numbers = (number for number in range(one.first, one.last + 1) if claims.is_claimed(one, number))
    found: dict[int, int] = {}
    for number in numbers:
        owed, leaf = held.owed.get(number), claim.answered.get(number)
        bound = held.book.bounds.get(number, 0)
        found[number] = bound if owed is None or owed.fee is None else owed.fee
        if leaf is not None and number in held.book.bounds:
            found[number] = leaf.amount
    return found
