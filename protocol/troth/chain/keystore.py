"""Keys in Ethereum keyfiles version 3: accounts on secp256k1, and a scheduler's VRF secret on P-256.

Both are 32-byte secrets. A VRF keyfile says so in a field ``purpose`` and has no address, so that neither is taken for
the other.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from troth.chain.errors import KeystoreMalformed, RawKeyRefused, WrongPassword
from troth.chain.keyfiles import create_keyfile_json, decode_keyfile_json
from troth.chain.private_files import create_private, read_private
from troth.chain.recursion import restore_recursion_limit
from troth.protocol import vrf
from troth.protocol.typed_data import CURVE_ORDER, address_of
from troth.protocol.types import Address, address_from_bytes

restore_recursion_limit()

SCRYPT_N = 262_144
"""Work factor of a new keyfile, as geth's default: about one second and 256 MiB to open."""

DEMO_SCRYPT_N = 4_096
"""Work factor for tests and the demo, about 10 ms: no protection for a weak password."""

_VRF_PURPOSE = "vrf-p256"
_RAW_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Key:
    """A secp256k1 account that can sign; the secret stays out of repr and logs."""

    secret: bytes = field(repr=False)
    address: Address

    @classmethod
    def from_secret(cls, secret: bytes) -> Key:
        """Account of a 32-byte secret; raises InvalidField if it is none."""
        return cls(secret, address_of(secret))

    @classmethod
    def generate(cls) -> Key:
        """A new account from the system's randomness."""
        return cls.from_secret((1 + secrets.randbelow(CURVE_ORDER - 1)).to_bytes(32, "big"))


def keystore_path(text: str) -> Path:
    """Path from a configuration value; RawKeyRefused if a private key stands there."""
    if _RAW_KEY.fullmatch(text.strip()):
        raise RawKeyRefused(
            "A raw private key stands where the path of a keystore belongs",
            f"{len(text.strip())} characters, not shown",
            "Put the key into a keystore, treat this one as leaked if the file was shared, and give the path.",
        )
    return Path(text).expanduser()


def create_account(path: Path, password: str, *, scrypt_n: int = SCRYPT_N, key: Key | None = None) -> Key:
    """Write ``key``, or a new one, to a keyfile with mode 0600; raises KeystoreExists rather than replace a file."""
    made = key or Key.generate()
    _write(path, _encrypted(made.secret, password, scrypt_n))
    return made


def load_account(path: Path, password: str) -> Key:
    """The account of a keyfile; raises one of KeystoreError's kinds."""
    content = _read(path)
    if "purpose" in content:
        raise KeystoreMalformed(
            "This keyfile holds no account", f"{path}: {content['purpose']}", "Name the account's file."
        )
    key = Key.from_secret(_decrypted(content, path, password))
    stated = str(content.get("address", key.address)).lower().removeprefix("0x")
    if stated != key.address.lower().removeprefix("0x"):
        raise KeystoreMalformed("The keyfile's address is not its key's", path, "Restore the file from a backup.")
    return key


def address_in(path: Path) -> Address | None:
    """The address that a keyfile states, without its password; None if it states none."""
    stated = _read(path).get("address")
    if not isinstance(stated, str) or not re.fullmatch(r"(0x)?[0-9a-fA-F]{40}", stated):
        return None
    return address_from_bytes(bytes.fromhex(stated.removeprefix("0x")))


def create_vrf_secret(path: Path, password: str, *, scrypt_n: int = SCRYPT_N, secret: bytes | None = None) -> bytes:
    """Write ``secret``, or a new one, to a VRF keyfile with mode 0600."""
    made = secret or vrf.generate_key()
    content = _encrypted(made, password, scrypt_n)
    del content["address"]
    _write(path, content | {"purpose": _VRF_PURPOSE})
    return made


def load_vrf_secret(path: Path, password: str) -> bytes:
    """The P-256 secret of a VRF keyfile; raises one of KeystoreError's kinds."""
    content = _read(path)
    if content.get("purpose") != _VRF_PURPOSE:
        raise KeystoreMalformed("This keyfile holds no VRF key", path, "Name the file that holds the VRF key.")
    return _decrypted(content, path, password)


def _encrypted(secret: bytes, password: str, scrypt_n: int) -> dict[str, Any]:
    encoded = password.encode("utf-8", errors="surrogateescape")
    content: dict[str, Any] = create_keyfile_json(secret, encoded, version=3, kdf="scrypt", iterations=scrypt_n)
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    create_private(path, json.dumps(content, indent=1).encode("utf-8"))


def _read(path: Path) -> dict[str, Any]:
    raw = read_private(path)
    if _RAW_KEY.fullmatch(raw.decode("latin-1").strip()):
        raise RawKeyRefused(
            "The file holds a raw private key", path, "Move the key into a keystore and erase this file."
        )
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise KeystoreMalformed("The file is no JSON", path, "Name an Ethereum keyfile version 3.") from error
    if not isinstance(content, dict) or content.get("version") != 3 or not isinstance(content.get("crypto"), dict):
        raise KeystoreMalformed("The file is no keyfile version 3", path, "Name an Ethereum keyfile version 3.")
    return content


def _decrypted(content: dict[str, Any], path: Path, password: str) -> bytes:
    try:
        secret = bytes(decode_keyfile_json(content, password.encode("utf-8", errors="surrogateescape")))
    except ValueError as error:
        if "MAC mismatch" in str(error):
            raise WrongPassword("The password does not open the keyfile", path, "Try the right one.") from error
        raise KeystoreMalformed(f"The keyfile cannot be opened: {error}", path, "Restore it from a backup.") from error
    except (KeyError, TypeError) as error:
        raise KeystoreMalformed("The keyfile lacks a field", f"{path}: {error}", "Restore it from a backup.") from error
    if len(secret) != 32:
        raise KeystoreMalformed("The keyfile holds no 32-byte key", path, "Restore it from a backup.")
    return secret
