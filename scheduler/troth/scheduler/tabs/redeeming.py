"""Turning clients' words into money: many vouchers in one transaction, when they are worth its gas."""

from __future__ import annotations

import logging

from troth.protocol.market import messages
from troth.protocol.market.calls import build
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.scheduler.orders.desk import Desk
from troth.scheduler.tabs.client_tabs import ClientTab

log = logging.getLogger(__name__)

REDEEM_GAS = 44_000
"""Of one voucher alone; many in one transaction cost a third of that each."""
MOST_TABS = 64
"""Vouchers in one transaction: under a million gas."""


async def redeem(desk: Desk, times: int) -> int:
    """Redeem what is worth ``times`` its gas at the deployment's ceiling price, and what is on tabs that close.

    How many vouchers were sent; raises ChainError.
    """
    worth = [held for held in desk.client_tabs if held.best is not None and _is_worth(desk, held, times)]
    worth.sort(key=lambda held: _payable(desk, held), reverse=True)
    chosen = [(held.tab, held.best) for held in worth[:MOST_TABS] if held.best is not None]
    if not chosen:
        return 0
    tabs, words = [tab for tab, _ in chosen], [best.message for _, best in chosen]
    signatures = [best.signature for _, best in chosen]
    call = build(desk.ledger.contracts, Part.BANK, "redeemMany", tuple(tabs), tuple(words), tuple(signatures))
    block = await desk.ledger.execute(call)
    log.info("%d vouchers were redeemed in block %d", len(chosen), block)
    return len(chosen)


def _payable(desk: Desk, held: ClientTab) -> int:
    """What redeeming the best voucher would pay now."""
    state = desk.ledger.state.tab_state(messages.tab_id(held.tab))
    return min(max(held.book.payable - state.redeemed, 0), state.balance)


def _is_worth(desk: Desk, held: ClientTab, times: int) -> bool:
    payable = _payable(desk, held)
    if not payable:
        return False
    state = desk.ledger.state.tab_state(messages.tab_id(held.tab))
    cost = REDEEM_GAS * desk.ledger.parameters.gas_price // PER
    return payable >= times * cost or (state.closes_at > 0 and payable > cost)
