"""Sending to a deployment of the market: a dry run that says what would happen, until ``broadcast``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import approvals_in_asset
from troth.protocol.market.calls import PartCall
from troth.protocol.types import Address

Told = dict[str, Any]
OpenKey = Callable[[], Key]


async def carry_out_paying(
    market: Market, call: PartCall, amount: int, sender: Address, open_key: OpenKey, *, broadcast: bool
) -> Told:
    """The same for a call that takes ``amount`` of the asset: a token's approvals come before it.

    A dry run shows the first of them, and what follows: the chain would look at the call without them.
    """
    before = await approvals_in_asset(market, sender, amount)
    told = await carry_out_all(market, [*before, call], sender, open_key, broadcast=broadcast)
    if not before:
        return told[0]
    return {**told[-1], "before": told[:-1]} if broadcast else {**told[0], "then": told[1:]}


async def carry_out(market: Market, call: PartCall, sender: Address, open_key: OpenKey, *, broadcast: bool) -> Told:
    """Send a call, or say what it would do; the key is opened only to send.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    simulation = await market.simulate(call, sender)
    if simulation.rejection is not None:
        raise ChainRejected(call.call.function, simulation.rejection)
    plan: Told = {
        "function": call.call.function,
        "contract": call.to,
        "from": sender,
        "value": str(call.call.value),
        "gas": simulation.gas,
        "maximum_cost": str(simulation.maximum_cost),
        "sent": broadcast,
    }
    if not broadcast:
        return {**plan, "note": "dry run, nothing was sent: add --broadcast"}
    receipt = await market.execute(call, open_key())
    return {**plan, "transaction": "0x" + receipt.transaction.hex(), "block": receipt.block, "gas": receipt.gas_used}


async def carry_out_all(
    market: Market, calls: Sequence[PartCall], sender: Address, open_key: OpenKey, *, broadcast: bool
) -> list[Told]:
    """One after the other. A dry run stops at the first: the next may need what it would change."""
    told: list[Told] = []
    for call in calls:
        told.append(await carry_out(market, call, sender, open_key, broadcast=broadcast))
        if not broadcast:
            told.extend({"function": later.call.function, "sent": False} for later in calls[len(told) :])
            break
    return told
