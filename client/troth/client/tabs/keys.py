"""Tab keys: one keyfile for each tab, encrypted as wallets are, and what follows from a key alone.

The wallet's key only opens and closes tabs; a tab key signs their orders and vouchers, and what a stolen one can lose
is its tab. The secrets of orders are derived from it, so that nothing in the store betrays which answers will be
checked, and a client that was restored from a backup has them again.
"""

from __future__ import annotations

from pathlib import Path

from troth.chain.keystore import Key, create_account, load_account
from troth.client.errors import WalletError
from troth.client.home import Home
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32

MASTER_TAG = b"troth/client/master/1"
REPLY_TAG = b"troth/client/reply/1"


class Keyring:
    """The tab keys of one home; each is decrypted once, when it is first needed."""

    def __init__(self, home: Home, password: str) -> None:
        self._home = home
        self._password = password
        self._open: dict[Address, Key] = {}

    def create(self, scrypt_n: int | None = None) -> Key:
        """A new key, on disk before it is used."""
        key = Key.generate()
        options = {} if scrypt_n is None else {"scrypt_n": scrypt_n}
        create_account(keyfile(self._home, key.address), self._password, key=key, **options)
        self._open[key.address] = key
        return key

    def key(self, address: Address) -> Key:
        """The key of a tab; WalletError where its file is gone, KeystoreError where it does not open."""
        if address not in self._open:
            path = keyfile(self._home, address)
            if not path.exists():
                what = "The key of this tab is not here"
                raise WalletError(what, path, "Restore it from a backup, or close the tab with the wallet.")
            self._open[address] = load_account(path, self._password)
        return self._open[address]


def keyfile(home: Home, address: Address) -> Path:
    """Where a tab key lies."""
    return home.tab_keys / f"{address.lower()}.json"


def master_of(key: Key) -> bytes:
    """The 32-byte secret from which those of all orders under a tab key are derived."""
    return keccak256(MASTER_TAG + key.secret)


def reply_secret(key: Key, request_hash: Hash32) -> bytes:
    """The X25519 secret to which openings of one order's check are sealed."""
    return keccak256(REPLY_TAG + master_of(key) + request_hash)
