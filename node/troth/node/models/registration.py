"""Registering a model and its execution class on chain; what is there already is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.node.keyfiles import open_keystore, run
from troth.node.transactions import carry_out
from troth.protocol.calls import Call, register_class, register_model
from troth.protocol.types import ExecutionClass, ModelDescriptor, to_address

REGISTERED = "AlreadyRegistered"


def register(
    descriptor: ModelDescriptor,
    execution_class: ExecutionClass,
    *,
    rpc: str,
    contract: str,
    keystore: Path | None,
    password_file: Path | None,
    broadcast: bool,
) -> list[dict[str, Any]]:
    """Send both registrations, or say what they would do."""
    key = open_keystore(keystore, password_file, "the account that pays", "--keystore")

    async def both() -> list[dict[str, Any]]:
        async with await Chain.connect(rpc, to_address(contract)) as chain:
            done = [await _once(chain, register_model(descriptor))]
            if not broadcast and done[0].get("sent") is False and "note" not in done[0]:
                # A class of a model that is not registered yet would be refused in a dry run.
                return [*done, {"call": "registerClass", "sent": False}]
            return [*done, await _once(chain, register_class(execution_class))]

    async def _once(chain: Chain, call: Call) -> dict[str, Any]:
        try:
            return await carry_out(chain, call, key, broadcast=broadcast)
        except ChainRejected as error:
            if error.name != REGISTERED:
                raise
            return {"call": call.function, "sent": False, "note": "registered already"}

    result: list[dict[str, Any]] = run(both())
    return result
