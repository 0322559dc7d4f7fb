"""What clients do not acknowledge is claimed: before their tabs close, or when it has been due for long.

A claim's amounts are on disk before it is filed, since every place of its tree may be objected to, after a restart as
well. An objection is answered with the order, its results and a fresh draw.
"""

from __future__ import annotations

import logging

import msgspec

from troth.protocol.market import claims, leaves, messages, tabs
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.state import ClaimRecord
from troth.protocol.market.types import LeafKind, Tab
from troth.protocol.types import Hash32
from troth.scheduler.orders.desk import Desk
from troth.scheduler.orders.drawing import fresh_draw
from troth.scheduler.tabs.client_tabs import ClientTab
from troth.scheduler.tabs.fallen import fell

log = logging.getLogger(__name__)

CLAIM_GAS = 110_000
"""Of a claim and its settlement."""
PATIENCE_LAGS = 3
"""Lags after its answer for which an order that is not acknowledged is waited for on an open tab."""


async def claim_due(desk: Desk, times: int) -> None:
    """File what is due; raises ChainError."""
    for held in desk.client_tabs:
        tab_id = messages.tab_id(held.tab)
        record = desk.ledger.state.tabs.get(tab_id)
        if record is None or record.claim is not None or held.best is None or not record.known:
            continue
        amounts = _claimable(desk, held, closing=record.closes_at > 0)
        cost = CLAIM_GAS * desk.ledger.parameters.gas_price // PER
        # A tab that closes is claimed for whatever is more than the gas: there is no other day.
        if sum(amounts.values()) > cost * (min(times, 1) if record.closes_at else times):
            await _file(desk, held, amounts)


def _claimable(desk: Desk, held: ClientTab, *, closing: bool) -> dict[int, int]:
    """Numbers with results that nobody acknowledged: all of a tab that closes, else those that are long due."""
    assert held.best is not None
    waited = desk.ledger.block - PATIENCE_LAGS * desk.ledger.parameters.lag
    found: dict[int, int] = {}
    for number in tabs.outstanding(held.best.message):
        worth, leaf = held.book.worth.get(number, 0), held.leaves.get(number)
        if not worth or leaf is None or (not closing and leaf.block > waited):
            continue
        story = desk.store.get(leaf.order)
        if story is None or story.answered is None or fell(desk.ledger.state, story):
            continue
        if found and number - min(found) >= tabs.WINDOW:
            break  # only so many numbers can be left out of one claim; the next one takes what follows
        found[number] = worth
    return found


async def _file(desk: Desk, held: ClientTab, amounts: dict[int, int]) -> None:
    assert held.best is not None
    try:
        claim, _ = claims.claim_of(held.best.message, amounts)
    except InvalidClaim as error:
        log.error("what is owed on tab 0x%s cannot be claimed: %s", messages.tab_id(held.tab).hex(), error)
        return
    kept = msgspec.msgpack.encode({str(number): str(amount) for number, amount in amounts.items()})
    row = (claim.root, messages.tab_id(held.tab), kept)
    await desk.database.commit(("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", row))
    voucher = held.best
    call = build(desk.ledger.contracts, Part.BANK, "claim", held.tab, voucher.message, voucher.signature, claim)
    block = await desk.ledger.execute(call)
    log.info("%d orders were claimed in block %d: %d", len(amounts), block, claim.total)


async def attend_claims(desk: Desk) -> None:
    """Answer objections to own claims, and settle what stood; raises ChainError."""
    state, block = desk.ledger.state, desk.ledger.block
    for record in state.tabs.values():
        if record.tab.payee != desk.operator.address or record.claim is None:
            continue
        for number, objection in sorted(record.claim.objections.items(), key=lambda one: one[1].deadline):
            if block <= objection.deadline:
                await _answer(desk, record.tab, record.claim, number)
        if not record.claim.objections and block >= record.claim.state.settles_at:
            await desk.ledger.execute(build(desk.ledger.contracts, Part.BANK, "settle", record.tab, record.claim.state))


async def _answer(desk: Desk, tab: Tab, record: ClaimRecord, number: int) -> None:
    amounts = _amounts(desk, record.state.claim.root)
    if amounts is None:
        log.error("the amounts of a claim are lost: the objection to number %d cannot be answered", number)
        return
    call = answer_call(desk, tab, record, number, amounts)
    block = await desk.ledger.execute(call)
    log.info("the objection to number %d was answered in block %d", number, block)


def answer_call(desk: Desk, tab: Tab, record: ClaimRecord, number: int, amounts: dict[int, int]) -> PartCall:
    """The leaf of a number, or the emptiness of its place."""
    claim = record.state.claim
    path = claims.build(claim.first, claim.last, amounts).path(number)
    amount, leaf = amounts.get(number, 0), b""
    if amount:
        story = desk.store.by_number(messages.tab_id(tab), number)
        assert story is not None
        assert story.answered is not None
        assert story.drawn is not None
        # Fresh: the payer, who may see these results for the first time, has its lottery and the court.
        draw = fresh_draw(desk, story, story.drawn.proof)
        leaf = leaves.encode(leaves.order_leaf(story.admitted.order, tab, story.answered.results, draw))
    shown = (path.siblings, path.sums, leaf)
    contracts = desk.ledger.contracts
    return build(contracts, Part.BANK, "answer", tab, record.state, number, LeafKind.ORDER, amount, *shown)


def _amounts(desk: Desk, root: Hash32) -> dict[int, int] | None:
    rows = desk.database.read("SELECT data FROM claims WHERE claim = ?", root)
    if not rows:
        return None
    kept = msgspec.msgpack.decode(rows[0][0], type=dict[str, str])
    return {int(number): int(amount) for number, amount in kept.items()}
