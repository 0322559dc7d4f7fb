"""`troth committee deploy`: the contract with its first members; a dry run until --broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from troth.chain.deployment import committee_creation, estimate_creation, submit
from troth.chain.keystore import address_in, load_account
from troth.chain.passwords import read_password
from troth.committee.errors import ConfigurationInvalid
from troth.protocol.committee import Member, threshold
from troth.protocol.errors import ProtocolError
from troth.protocol.types import to_address, to_hash32


async def deploy(
    rpc: str, members: Sequence[str], keystore: Path, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Estimate, and with `broadcast` send; `members` as `init` prints them."""
    first = [member_of(text) for text in members]
    sender = address_in(keystore)
    if sender is None:
        raise ConfigurationInvalid("The keystore names no address", keystore, "Name another file.")
    creation = committee_creation(first)
    simulation = await estimate_creation(rpc, creation, sender)
    plan: dict[str, Any] = {
        "function": creation.function,
        "from": sender,
        "members": [f"{one.operator} at {one.endpoint}" for one in first],
        "threshold": threshold(len(first)),
        "gas": simulation.gas,
        "maximum_cost": str(simulation.maximum_cost),
        "sent": broadcast,
    }
    if not broadcast:
        return {**plan, "note": "dry run, nothing was sent: add --broadcast"}
    key = load_account(keystore, read_password(password_file, purpose="the keystore that pays"))
    receipt = await submit(rpc, creation, key)
    return {
        **plan,
        "committee": receipt.created,
        "transaction": "0x" + receipt.transaction.hex(),
        "block": receipt.block,
    }


def member_of(text: str) -> Member:
    """`operator,0xtlskeyhash,https://…`; raises ConfigurationInvalid."""
    try:
        operator, tls_key_hash, endpoint = text.split(",", 2)
        return Member(to_address(operator), to_hash32(bytes.fromhex(tls_key_hash.removeprefix("0x"))), endpoint)
    except (ValueError, ProtocolError) as error:
        remedy = "Write --member 0xOPERATOR,0xTLSKEYHASH,https://name:port, as `troth committee init` prints it."
        raise ConfigurationInvalid("This is no member", text, remedy) from error
