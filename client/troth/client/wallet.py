"""The client's wallet: a keyfile, and the transactions it signs, dry runs until told otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.keystore import Key, address_in, create_account, load_account
from troth.chain.passwords import read_password
from troth.client.errors import TransactionRefused, WalletError
from troth.client.home import Home
from troth.client.money import format_amount
from troth.protocol.calls import Call
from troth.protocol.types import Address


def create_wallet(home: Home, password_file: Path | None, import_key: Path | None, scrypt_n: int | None = None) -> Key:
    """A new wallet, or a copy of an existing keyfile's account; WalletError if there is one already."""
    if home.keystore.exists():
        raise WalletError("There is a wallet already", home.keystore, "Use it, or move the file away first.")
    home.create()
    password = read_password(password_file, confirm=True, purpose="the wallet")
    key = load_account(import_key, password) if import_key else None
    options = {} if scrypt_n is None else {"scrypt_n": scrypt_n}
    return create_account(home.keystore, password, key=key, **options)


def open_wallet(home: Home, password_file: Path | None) -> Key:
    """The wallet's key; raises WalletError if there is none, KeystoreError if it does not open."""
    require_wallet(home)
    return load_account(home.keystore, read_password(password_file, purpose="the wallet"))


def wallet_address(home: Home) -> Address:
    """The wallet's address, without its password."""
    require_wallet(home)
    address = address_in(home.keystore)
    if address is None:
        raise WalletError("The wallet's file names no address", home.keystore, "Restore it from a backup.")
    return address


def require_wallet(home: Home) -> None:
    """Raise WalletError if there is no wallet yet."""
    if not home.keystore.exists():
        raise WalletError("There is no wallet yet", home.keystore, "Run `troth client init --contract ADDRESS` first.")


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
