"""Sending an operator's transactions: a dry run that says what would happen, until `broadcast`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key, load_account
from troth.chain.market import Market
from troth.chain.passwords import read_password
from troth.chain.records import Receipt, Simulation
from troth.node.errors import ConfigError
from troth.protocol.calls import Call
from troth.protocol.market.calls import PartCall

UNSENT = {"sent": False, "remedy": "Repeat with --broadcast to send it."}


async def carry_out(chain: Chain, call: Call, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """Send a call, or say what it would do; JSON values, amounts in wei as text.

    Raises:
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    told = _told(call, key, await chain.simulate(call, key.address))
    return {**told, **(_sent(await chain.execute(call, key)) if broadcast else UNSENT)}


async def carry_out_at(market: Market, call: PartCall, key: Key, *, broadcast: bool) -> dict[str, Any]:
    """The same for a call to a deployment of the market."""
    told = _told(call.call, key, await market.simulate(call, key.address))
    return {**told, **(_sent(await market.execute(call, key)) if broadcast else UNSENT)}


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


def open_keystore(keystore: Path | None, password_file: Path | None, purpose: str, option: str) -> Key:
    """The account of a keyfile; ConfigError if none was named."""
    if keystore is None:
        raise ConfigError(f"no keyfile for {purpose}", "none named", f"Name it with {option}.")
    return load_account(keystore, read_password(password_file, purpose=purpose))


def run(coroutine: Any) -> Any:
    """Run a command's coroutine to its end."""
    return asyncio.run(coroutine)
