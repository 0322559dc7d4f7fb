"""Sending to a deployment of the market: a dry run that says what would happen, until ``broadcast``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.protocol.market.calls import PartCall
from troth.protocol.types import Address

Told = dict[str, Any]
OpenKey = Callable[[], Key]


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
