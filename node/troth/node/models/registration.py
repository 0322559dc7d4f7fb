"""Transactions of a node's operator: dry runs until ``broadcast``; models and classes are registered so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import approvals_in_asset
from troth.protocol.market import types as market
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.types import ModelDescriptor

KNOWN = frozenset({"AlreadyRegistered", "ClassKnown"})
"""How the market refuses a model or a class that it has."""


async def carry_out(market: Market, call: PartCall, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """Send a call, or say what it would do; JSON values, amounts as text.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    simulation = await market.simulate(call, key.address)
    if simulation.rejection is not None:
        raise ChainRejected(call.call.function, simulation.rejection)
    told: dict[str, Any] = {
        "call": call.call.function,
        "to": call.to,
        "from": key.address,
        "value_wei": str(call.call.value),
        "gas": simulation.gas,
        "maximum_gas_cost_wei": str(simulation.maximum_cost),
    }
    if not broadcast:
        return {**told, "sent": False, "remedy": "Repeat with --broadcast to send it."}
    receipt = await market.execute(call, key)
    return {
        **told,
        "sent": True,
        "transaction": "0x" + receipt.transaction.hex(),
        "block": receipt.block,
        "gas": receipt.gas_used,
    }


async def carry_out_paying(market: Market, call: PartCall, amount: int, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """A call that takes ``amount`` of the asset: a token's approvals come before it.

    A dry run shows the first of them, and what follows: the chain would look at the call without them.
    """
    before = await approvals_in_asset(market, key.address, amount)
    told = await carry_out_all(market, [*before, call], key, broadcast=broadcast)
    if not before:
        return told[0]
    return {**told[-1], "before": told[:-1]} if broadcast else {**told[0], "then": told[1:]}


async def carry_out_all(
    market: Market, calls: Sequence[PartCall], key: Key, *, broadcast: bool
) -> list[dict[str, Any]]:
    """Several calls one after the other. A dry run stops at the first: the next may need what it would change."""
    told = []
    for call in calls:
        told.append(await carry_out(market, call, key, broadcast=broadcast))
        if not broadcast:
            told.extend({"call": later.call.function, "sent": False} for later in calls[len(told) :])
            break
    return told


async def register_at(
    connected: Market,
    descriptor: ModelDescriptor,
    execution_class: market.ExecutionClass,
    key: Key,
    *,
    broadcast: bool,
) -> list[dict[str, Any]]:
    """Both registrations with a deployment of the market, or what they would do."""

    async def once(call: PartCall) -> dict[str, Any]:
        try:
            return await carry_out(connected, call, key, broadcast=broadcast)
        except ChainRejected as error:
            if error.name not in KNOWN:
                raise
            return {"call": call.call.function, "sent": False, "note": "registered already"}

    done = [await once(build(connected.contracts, Part.CLASSES, "registerModel", descriptor))]
    if not broadcast and done[0].get("sent") is False and "note" not in done[0]:
        # A class of a model that is not registered yet would be refused in a dry run.
        return [*done, {"call": "registerClass", "sent": False}]
    return [*done, await once(build(connected.contracts, Part.CLASSES, "registerClass", execution_class))]
