"""Sending an operator's transactions: a dry run that says what would happen, until `broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.records import Receipt, Simulation
from troth.protocol.calls import Call

UNSENT = {"sent": False, "remedy": "Repeat with --broadcast to send it."}


async def carry_out(chain: Chain, call: Call, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """Send a call, or say what it would do; JSON values, amounts in wei as text.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    told = _told(call, key, await chain.simulate(call, key.address))
    return {**told, **(_sent(await chain.execute(call, key)) if broadcast else UNSENT)}


def _told(call: Call, key: Key, simulation: Simulation) -> dict[str, Any]:
    if simulation.rejection is not None:
        raise ChainRejected(call.function, simulation.rejection)
    return {
        "call": call.function,
        "from": key.address,
        "value": str(call.value),
        "gas": simulation.gas,
        "maximum_cost": str(simulation.maximum_cost),
    }


def _sent(receipt: Receipt) -> dict[str, Any]:
    transaction = "0x" + receipt.transaction.hex()
    return {"sent": True, "transaction": transaction, "block": receipt.block, "gas": receipt.gas_used}


async def carry_out_all(chain: Chain, calls: Sequence[Call], key: Key, *, broadcast: bool) -> list[dict[str, Any]]:
    """Several calls one after the other. A dry run stops at the first: the next may need what it would change."""
    told = []
    for call in calls:
        told.append(await carry_out(chain, call, key, broadcast=broadcast))
        if not broadcast:
            told.extend({"call": later.function, "sent": False} for later in calls[len(told) :])
            break
    return told
