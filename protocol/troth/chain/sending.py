"""What a command sends: simulated always, sent only where ``--broadcast`` asks for it, and told in the same words.

A dry run opens no key. What is told is what ``--json`` prints: amounts are text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from troth.chain.deployment import estimate, submit
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import approvals_in_asset
from troth.protocol.calls import Call
from troth.protocol.market.calls import PartCall
from troth.protocol.types import Address

Told = dict[str, Any]
DRY_RUN = "dry run, nothing was sent: add --broadcast"


@dataclass(frozen=True, slots=True)
class TransactionSender:
    """Who sends and pays; ``open_key`` is called once something is sent."""

    address: Address
    open_key: Callable[[], Key]

    @classmethod
    def of(cls, key: Key) -> TransactionSender:
        """Whose key is open already."""
        return cls(key.address, lambda: key)


async def carry_out(market: Market, call: PartCall, sender: TransactionSender, *, broadcast: bool) -> Told:
    """Send a call of the market's, or say what it would do.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    simulation = await market.simulate(call, sender.address)
    if simulation.rejection is not None:
        raise ChainRejected(call.call.function, simulation.rejection)
    plan: Told = {
        "function": call.call.function,
        "contract": call.to,
        "from": sender.address,
        "value_wei": str(call.call.value),
        "gas": simulation.gas,
        "maximum_gas_cost_wei": str(simulation.maximum_cost),
        "sent": broadcast,
    }
    if not broadcast:
        return {**plan, "note": DRY_RUN}
    receipt = await market.execute(call, sender.open_key())
    return {**plan, "transaction": "0x" + receipt.transaction.hex(), "block": receipt.block, "gas": receipt.gas_used}


async def carry_out_all(
    market: Market, calls: Sequence[PartCall], sender: TransactionSender, *, broadcast: bool
) -> list[Told]:
    """One after the other. A dry run stops at the first: the next may need what it would change."""
    told: list[Told] = []
    for call in calls:
        told.append(await carry_out(market, call, sender, broadcast=broadcast))
        if not broadcast:
            told.extend({"function": later.call.function, "sent": False} for later in calls[len(told) :])
            break
    return told


async def carry_out_paying(
    market: Market, call: PartCall, amount: int, sender: TransactionSender, *, broadcast: bool
) -> Told:
    """The same for a call that takes ``amount`` of the asset: a token's approvals come before it.

    A dry run shows the first of them, and what follows: the chain would look at the call without them.
    """
    before = await approvals_in_asset(market, sender.address, amount)
    told = await carry_out_all(market, [*before, call], sender, broadcast=broadcast)
    if not before:
        return told[0]
    return {**told[-1], "before": told[:-1]} if broadcast else {**told[0], "then": told[1:]}


async def send_or_show(
    rpc: str,
    call: Call,
    to: Address | None,
    sender: TransactionSender,
    told: Mapping[str, Any],
    *,
    broadcast: bool,
    creates: str = "",
) -> Told:
    """Send a call of any contract's, or a creation of what is named ``creates``; or say what it would do.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    simulation = await estimate(rpc, call, sender.address, to)
    plan: Told = {
        "function": call.function,
        "from": sender.address,
        **told,
        "gas": simulation.gas,
        "maximum_gas_cost_wei": str(simulation.maximum_cost),
        "sent": broadcast,
    }
    if not broadcast:
        return {**plan, "note": DRY_RUN}
    receipt = await submit(rpc, call, sender.open_key(), to)
    made = {} if receipt.created is None else {creates: receipt.created, "start_block": receipt.block}
    return {**plan, **made, "transaction": "0x" + receipt.transaction.hex(), "block": receipt.block}
