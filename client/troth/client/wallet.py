"""The client's wallet: a keyfile, and the transactions it signs, dry runs until told otherwise."""

from __future__ import annotations

from pathlib import Path

from troth.chain.keystore import Key, address_in, create_account, load_account, read_password
from troth.client.errors import WalletError
from troth.client.home import Home
from troth.protocol.types import Address


def create_wallet(home: Home, password_file: Path | None, import_key: Path | None, scrypt_n: int | None = None) -> Key:
    """A new wallet, or a copy of an existing keyfile's account."""
    home.create()
    password = read_password(password_file, confirm=True, purpose="the wallet")
    key = load_account(import_key, password) if import_key else None
    options = {} if scrypt_n is None else {"scrypt_n": scrypt_n}
    return create_account(home.keystore, password, key=key, **options)


def require_unconfigured(home: Home, import_key: Path | None) -> None:
    """Raise WalletError if there is a configured wallet already, or another one than is to be imported.

    One without a configuration is left by a command that was killed, and is used.
    """
    if not home.keystore.exists():
        return
    if home.configuration.exists():
        raise WalletError("There is a wallet already", home.keystore, "Use it, or move the file away first.")
    if import_key is not None and address_in(import_key) != wallet_address(home):
        raise WalletError("There is another wallet already", home.keystore, "Import no key, or move the file away.")


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
        raise WalletError("There is no wallet yet", home.keystore, "Run `troth client init` first.")
