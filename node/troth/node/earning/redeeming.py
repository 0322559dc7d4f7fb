"""Which vouchers are redeemed now: together, and only where the gas is worth it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from troth.chain.records import Fees
from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.claiming import is_pressing
from troth.node.earning.policy import EarningPolicy
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.types import NO_ADDRESS, Contracts, Parameters, Tab, Voucher

FIRST_GAS, NEXT_GAS = 44_000, 14_000
"""Gas of redeeming one voucher, and of each further one in the same call."""
CLAIM_GAS = 61_000 + 60_000
"""Gas of a claim and of its settlement."""


@dataclass(frozen=True, slots=True)
class RedeemableVoucher:
    """A voucher that pays ``amount`` now; ``pressing``: the tab closes or its payer leaves."""

    tab: Tab
    voucher: Signed[Voucher]
    amount: int
    pressing: bool


def redeemable(books: NodeBooks, ledger: NodeLedger) -> tuple[RedeemableVoucher, ...]:
    """All vouchers that would pay something, the dearest first."""
    found = []
    for tab in books.tabs():
        record, signed = ledger.state.tabs.get(tab), books.voucher(tab)
        if record is None or signed is None or not record.known:
            continue
        state = ledger.state.tab_state(tab)
        amount = min(signed.message.spent - record.redeemed, state.balance)
        if amount > 0:
            found.append(RedeemableVoucher(record.tab, signed, amount, is_pressing(record, ledger)))
    return tuple(sorted(found, key=lambda one: -one.amount))


def worthwhile(
    found: tuple[RedeemableVoucher, ...], price: int, policy: EarningPolicy
) -> tuple[RedeemableVoucher, ...]:
    """Those to redeem now at a price per 10^9 gas: together they are worth their gas, and each one its own share.

    What presses is redeemed as soon as it brings more than its gas, beside the others or alone.
    """
    chosen = tuple(one for one in found if policy.is_worth(one.amount, gas_cost(NEXT_GAS, price)))
    cost = gas_cost(FIRST_GAS + NEXT_GAS * max(len(chosen) - 1, 0), price)
    if chosen and policy.is_worth(sum(one.amount for one in chosen), cost):
        pressing = (one for one in found if one.pressing and one.amount > gas_cost(NEXT_GAS, price))
        return tuple(dict.fromkeys((*chosen, *pressing)))
    return tuple(one for one in found if one.pressing and one.amount > gas_cost(FIRST_GAS, price))


def redeem_call(chosen: tuple[RedeemableVoucher, ...], contracts: Contracts) -> PartCall:
    """One call for all of them."""
    if len(chosen) == 1:
        (one,) = chosen
        return build(contracts, Part.BANK, "redeem", one.tab, one.voucher.message, one.voucher.signature)
    words = ([one.tab for one in chosen], [one.voucher.message for one in chosen])
    return build(contracts, Part.BANK, "redeemMany", *words, [one.voucher.signature for one in chosen])


def gas_cost(gas: int, price: int) -> int:
    """Asset units for so much gas at a price per 10^9 gas."""
    return gas * price // PER


def gas_price(fees: Fees, parameters: Parameters) -> int:
    """Asset units per 10^9 gas now: the chain's own price for its coin, the deployment's ceiling for a token."""
    if parameters.asset != NO_ADDRESS:
        return parameters.gas_price
    return (fees.maximum + fees.priority) // 2 * PER
