"""`troth committee init` and `deploy`: a member's files, and the contract with its first members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.deployment import committee_creation, estimate, submit
from troth.chain.keystore import address_in, create_account, load_account, read_password
from troth.chain.new_files import create_file
from troth.committee.configuration import FILE, Bonding, load, template
from troth.committee.errors import MemberConfigurationInvalid
from troth.protocol.committee import read_member, threshold
from troth.transport.identity import load_or_create_identity


@dataclass(frozen=True, slots=True)
class MemberInitOptions:
    """The command line of `init`."""

    rpc: str
    committee: str
    bonding: Bonding
    host: str
    port: int
    endpoint: str


def initialise(folder: Path, wishes: MemberInitOptions, password_file: Path | None) -> dict[str, object]:
    """Write the configuration and, where there are none, keys; returns what there is now."""
    file = folder / FILE
    if file.exists():
        raise MemberConfigurationInvalid("There is a configuration already", file, "Edit it, or choose another --home.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    password = read_password(password_file, confirm=True, purpose="the member's keystore")
    text = template(wishes.rpc, wishes.committee, wishes.bonding, (wishes.host, wishes.port), wishes.endpoint)
    configuration = load(folder, text)
    path = configuration.operator_keystore
    operator = (load_account if path.exists() else create_account)(path, password).address
    tls_key_hash = "0x" + load_or_create_identity(configuration.tls_folder).spki_sha256.hex()
    # At the end, so that the command can be given again, corrected or after a kill. Only its user may read it: the
    # address of a chain node may hold a provider's secret.
    create_file(file, text.encode())
    return {
        "operator": operator,
        "tls_key_hash": tls_key_hash,
        "endpoint": wishes.endpoint,
        "member": f"{operator},{tls_key_hash},{wishes.endpoint}",
        "config": str(file),
        "next": [
            "one of you: troth committee deploy with --member for each",
            f"then each of you: write its address as chain.committee into {FILE}",
        ],
    }


async def deploy(
    rpc: str, members: Sequence[str], keystore: Path, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Estimate, and with `broadcast` send; `members` as `init` prints them."""
    first = [read_member(text) for text in members]
    sender = address_in(keystore)
    if sender is None:
        raise MemberConfigurationInvalid("The keystore names no address", keystore, "Name another file.")
    creation = committee_creation(first)
    simulation = await estimate(rpc, creation, sender)
    plan: dict[str, Any] = {
        "function": creation.function,
        "from": sender,
        "members": [f"{one.operator} at {one.endpoint}" for one in first],
        "threshold": threshold(len(first)),
        "gas": simulation.gas,
        "maximum_gas_cost_wei": str(simulation.maximum_cost),
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
