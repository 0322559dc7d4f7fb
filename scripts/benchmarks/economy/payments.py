"""Coalitions on tabs: a payer that vanishes, a payee that claims what was refunded, one stake behind many tabs.

Books, claims and redemptions are ``troth.protocol.market``'s. A payee serves only what the deposits cover with the gas
of a claim besides; a payer looks at every claim and objects to what it does not owe.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.economy.coalition import Coalition
from benchmarks.economy.world import COST, GAS, GWEI, World
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims, convictions, prices, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.tabs import PayeeBook, PayerBook
from troth.protocol.market.types import TabState
from troth.protocol.types import Hash32

TAB = Hash32(keccak256(b"economy: tab"))
ORDERS = 8
PERCENTS = (100, 80, 50, 30, 20, 10, 3, 1)
"""The payer orders answers that cost this part of g: what is not worth a claim's gas is not claimed."""
CLAIM_REPAID = 100_000
"""Gas that the tab pays back to who settles a claim, at most what the claim brought."""
TABS = 50


def reserve(world: World) -> int:
    """Gas of a claim at the ceiling, which a careful payee asks a tab to hold beside what is owed."""
    return CLAIM_REPAID * world.parameters.gas_price // prices.PER


def run_up(deposit: int, fee: int, kept: int) -> tuple[PayeeBook, int]:
    """Orders of this fee on a tab, as many as the payee takes on while the deposits hold ``kept`` besides."""
    payer, payee = PayerBook(TAB), PayeeBook(tabs.first_voucher(TAB))
    state = TabState(balance=deposit, known=True)
    seen = replace(state, balance=max(deposit - kept, 0))
    served = 0
    for _ in range(ORDERS):
        try:
            payer, number = tabs.order_next(payer, fee, state)
            payee = tabs.admit(tabs.accept(payee, payer.voucher), number, fee, seen)
        except InvalidVoucher:
            break
        payee = tabs.served(payee, number, fee)
        served += fee
    return payee, served


def settled(world: World, payee: PayeeBook, deposit: int) -> tuple[int, int]:
    """What a claim of all that is open pays the payee, and what the tab pays back for its gas."""
    claim, _ = claims.claim_of(payee.best, payee.worth)
    state, paid = tabs.redeem(TabState(balance=deposit, known=True), claims.owed(payee.best, claim))
    return paid, min(int(world.paid_back(CLAIM_REPAID)), paid, state.balance)


def vanishing(world: World, *, careful: bool = True) -> float:
    """The best that a payer has of closing its tab and never acknowledging: answers that nobody finds worth a claim."""
    return max(_vanishing(world, world.g * part // 100, careful=careful) for part in PERCENTS)


def _vanishing(world: World, fee: int, *, careful: bool) -> float:
    kept = reserve(world) if careful else 0
    deposit = ORDERS * fee + kept
    payee, served = run_up(deposit, fee, kept)
    tab = world.wei(GAS.open_tab + GAS.close_tab)
    if not served:
        return -tab
    paid, gas = settled(world, payee, deposit)
    if paid + gas < world.wei(GAS.claim + GAS.settle):
        return served - tab
    return served - paid - gas - tab


def deserted(world: World) -> float:
    """What the honest payee has of eight answers at g whose payer vanished."""
    deposit = ORDERS * world.g + reserve(world)
    payee, served = run_up(deposit, world.g, reserve(world))
    paid, gas = settled(world, payee, deposit)
    return paid + gas - world.wei(GAS.claim + GAS.settle) - COST * served


def claiming_refunded(world: World) -> float:
    """A payee that claims a leaf which a case made void: its payer objects, nobody can answer, the claim is struck."""
    voucher = PayerBook(TAB)
    for _ in range(2):
        voucher, _ = tabs.order_next(voucher, world.g, TabState(balance=4 * world.g, known=True))
    claim, tree = claims.claim_of(voucher.voucher, {1: world.g, 2: world.g})
    shown = [(number, world.g, tree.path(number)) for number in (1, 2)]
    wrong = claims.wrong_numbers(claim, shown, {1: world.g, 2: 0})
    return -world.wei(GAS.claim) if wrong else world.g - world.wei(GAS.settle)


def objecting(world: World) -> float:
    """What objecting and striking cost its payer: nobody pays it back."""
    return world.g - world.wei(GAS.objection + GAS.strike)


def many_tabs(world: World, *, covered: bool = True) -> float:
    """A scheduler that promises fifty nodes work on tabs and never pays: what it got for nothing, less its stake.

    Nodes that work only while their tab covers it are paid out of it. ``covered`` false: they look at the stake alone.
    """
    deposit = ORDERS * world.g if covered else 0
    short = gas = 0
    for _ in range(TABS):
        if covered:
            payee, served = run_up(deposit, world.g, 0)
            paid, _ = settled(world, payee, deposit)
            short += served - paid
        else:
            short += ORDERS * world.g
        gas += GAS.open_tab + GAS.close_tab
    least = world.parameters.scheduler_stake
    taken = sum(convictions.broken_promise(least, short, least))
    return short - taken - world.wei(gas)


def coalitions() -> list[Coalition]:
    """All that play on tabs."""
    return [
        Coalition("payer that vanishes", "tab", vanishing, honest=deserted, whom="its payee, for eight answers"),
        Coalition(
            "payee that claims what was refunded", "claim", claiming_refunded, honest=objecting, whom="who objects"
        ),
        Coalition("one stake behind fifty tabs", "50 tabs", many_tabs),
    ]


def least_order(world: World) -> float:
    """Gwei that an order must cost for its scheduler to earn beside an all-in task's gas."""
    return world.wei(GAS.task) / (1 - COST) / 0.2 / GWEI
