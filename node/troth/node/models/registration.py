"""Registering models and classes: dry runs until ``broadcast``."""

from __future__ import annotations

from typing import Any

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.sending import TransactionSender, carry_out
from troth.protocol.market import types as market
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.types import ModelDescriptor

KNOWN = frozenset({"AlreadyRegistered", "ClassKnown"})
"""How the market refuses a model or a class that it has."""
REGISTERED_ALREADY = "registered already"


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
            return await carry_out(connected, call, TransactionSender.of(key), broadcast=broadcast)
        except ChainRejected as error:
            if error.name not in KNOWN:
                raise
            return {"function": call.call.function, "sent": False, "note": REGISTERED_ALREADY}

    done = [await once(build(connected.contracts, Part.CLASSES, "registerModel", descriptor))]
    if not broadcast and done[0]["note"] != REGISTERED_ALREADY:
        # A class of a model that is not registered yet would be refused in a dry run.
        return [*done, {"function": "registerClass", "sent": False}]
    return [*done, await once(build(connected.contracts, Part.CLASSES, "registerClass", execution_class))]
