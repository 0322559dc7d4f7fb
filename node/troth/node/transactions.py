"""Sending an operator's transactions: a dry run that says what would happen, until `broadcast`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key, load_account
from troth.chain.passwords import read_password
from troth.node.errors import ConfigError
from troth.protocol.calls import Call


async def carry_out(chain: Chain, call: Call, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """Send a call, or say what it would do; JSON values, amounts in wei as text.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    simulation = await chain.simulate(call, key.address)
    if simulation.rejection is not None:
        raise ChainRejected(call.function, simulation.rejection)
    told: dict[str, Any] = {
        "call": call.function,
        "from": key.address,
        "value": str(call.value),
        "gas": simulation.gas,
        "maximum_cost": str(simulation.maximum_cost),
    }
    if not broadcast:
        return {**told, "sent": False, "remedy": "Repeat with --broadcast to send it."}
    receipt = await chain.execute(call, key)
    return {
        **told,
        "sent": True,
        "transaction": "0x" + receipt.transaction.hex(),
        "block": receipt.block,
        "gas": receipt.gas_used,
    }


async def carry_out_all(chain: Chain, calls: Sequence[Call], key: Key, *, broadcast: bool) -> list[dict[str, Any]]:
    """Several calls one after the other. A dry run stops at the first: the next may need what it would change."""
    told = []
    for call in calls:
        told.append(await carry_out(chain, call, key, broadcast=broadcast))
        if not broadcast:
            told.extend({"call": later.function, "sent": False} for later in calls[len(told) :])
            break
    return told


def open_keystore(keystore: Path | None, password_file: Path | None, purpose: str, option: str) -> Key:
    """The account of a keyfile; ConfigError if none was named."""
    if keystore is None:
        raise ConfigError(f"no keyfile for {purpose}", "none named", f"Name it with {option}.")
    return load_account(keystore, read_password(password_file, purpose=purpose))


def run(coroutine: Any) -> Any:
    """Run a command's coroutine to its end."""
    return asyncio.run(coroutine)
