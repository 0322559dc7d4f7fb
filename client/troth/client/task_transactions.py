"""Transactions of the wallet with the per-task contract, dry runs until told otherwise."""

from __future__ import annotations

from typing import Any

from troth.chain.adapter import Chain
from troth.chain.keystore import Key
from troth.client.errors import TransactionRefused
from troth.client.money import format_amount
from troth.protocol.calls import Call
from troth.protocol.types import Address


async def transact(chain: Chain, call: Call, key: Key | None, sender: Address, *, broadcast: bool) -> dict[str, Any]:
    """Simulate a call, and send it if `broadcast`; returns what `--json` prints.

    Raises:
        TransactionRefused: the chain would not take it.
    """
    simulation = await chain.simulate(call, sender)
    if simulation.rejection is not None:
        remedy = f"Nothing was sent. {simulation.rejection.remedy}"
        raise TransactionRefused(f"The chain would refuse {call.function}", simulation.rejection, remedy)
    planned: dict[str, Any] = {
        "function": call.function,
        "from": sender,
        "value_wei": str(call.value),
        "gas": simulation.gas,
        "maximum_gas_cost_wei": str(simulation.maximum_cost),
        "broadcast": broadcast,
    }
    if not broadcast or key is None:
        return planned
    receipt = await chain.execute(call, key)
    return {**planned, "transaction": "0x" + receipt.transaction.hex(), "gas": receipt.gas_used, "block": receipt.block}


def describe_transaction(done: dict[str, Any]) -> str:
    """What a person reads of `transact`'s result."""
    if "transaction" in done:
        return f"sent {done['function']} in block {done['block']}: {done['transaction']} ({done['gas']:,} gas)"
    value = format_amount(int(done["value_wei"]))
    cost = format_amount(int(done["maximum_gas_cost_wei"]))
    return (
        f"dry run: {done['function']} from {done['from']}, value {value}, about {done['gas']:,} gas (at most {cost})\n"
        "nothing was sent; add --broadcast to send it"
    )
