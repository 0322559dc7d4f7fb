"""Turning clients' words into money: many vouchers in one transaction, when they are worth its gas."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Sequence

from troth.chain.rounds import rounds
from troth.protocol.market import messages
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.types import Contracts
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.tabs.client_tabs import ClientTab
from troth.scheduler.tabs.money import ClientBooks

log = logging.getLogger(__name__)

REDEEM_GAS = 44_000
"""Of one voucher alone; many in one transaction cost a third of that each."""
MOST_TABS = 64
"""Vouchers in one transaction: under a million gas."""


async def redeem(context: SchedulerContext, times: int) -> int:
    """Redeem what is worth ``times`` its gas at the deployment's ceiling price, and what is on tabs that close.

    How many vouchers were sent; raises ChainError.
    """
    chosen = await redeemable(context, times)
    if not chosen:
        return 0
    block = await context.ledger.execute(redeem_call(context.ledger.contracts, chosen))
    log.info("%d vouchers were redeemed in block %d", len(chosen), block)
    return len(chosen)


async def redeemable(books: ClientBooks, times: int) -> list[ClientTab]:
    """The tabs whose best word is worth that, dearest first, as many as go into one call."""
    found = []
    for held in books.client_tabs:
        worth = payable(books, held) if held.best is not None else 0
        if worth and _is_worth(books, held, worth, times):
            found.append((worth, held))
        await rounds.give_way()
    return [held for _, held in heapq.nlargest(MOST_TABS, found, key=lambda one: one[0])]


def redeem_call(contracts: Contracts, chosen: Sequence[ClientTab]) -> PartCall:
    """Their best words in one call."""
    words = [(held.tab, held.best) for held in chosen if held.best is not None]
    tabs, signed = tuple(tab for tab, _ in words), [best for _, best in words]
    messages_, signatures = tuple(one.message for one in signed), tuple(one.signature for one in signed)
    return build(contracts, Part.BANK, "redeemMany", tabs, messages_, signatures)


def payable(books: ClientBooks, held: ClientTab) -> int:
    """What redeeming the best voucher would pay now."""
    state = books.ledger.state.tab_state(messages.tab_id(held.tab))
    return min(max(held.book.payable - state.redeemed, 0), state.balance)


def _is_worth(books: ClientBooks, held: ClientTab, worth: int, times: int) -> bool:
    cost = REDEEM_GAS * books.ledger.parameters.gas_price // PER
    closes_at = books.ledger.state.tab_state(messages.tab_id(held.tab)).closes_at
    return worth >= times * cost or (closes_at > 0 and worth > cost)
