"""Keys in Ethereum keyfiles version 3, files that only their owner reads, and where a password comes from.

A keyfile holds a 32-byte secret: an account's, or a VRF key's. A VRF keyfile says so in a field ``purpose`` and has no
address, so that neither is taken for the other.

A password comes from a prompt or from a file. It is never a command-line argument, which shows in the process list,
and never the environment's own text, which other processes inherit.
"""

from __future__ import annotations

import getpass
import importlib
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from troth.chain.errors import (
    KeystoreExists,
    KeystoreExposed,
    KeystoreMalformed,
    KeystoreMissing,
    PasswordMissing,
    RawKeyRefused,
    WrongPassword,
)
from troth.chain.new_files import create_file, remove_unfinished
from troth.protocol import vrf
from troth.protocol.typed_data import CURVE_ORDER, address_of
from troth.protocol.types import Address, address_from_bytes

LARGEST = 64 * 1024
"""Bytes; a keyfile has about 500."""
ENVIRONMENT = "TROTH_PASSWORD_FILE"
"""Names the file that holds the password; ``--password-file`` goes before it."""
PASSWORD_REMEDY = f"Give the right one, at the prompt or in the file that --password-file or {ENVIRONMENT} names."
SCRYPT_N = 262_144
"""Work factor of a new keyfile, as geth's default: about one second and 256 MiB to open."""
DEMO_SCRYPT_N = 4_096
"""Work factor for tests and the demo, about 10 ms: no protection for a weak password."""
_VRF_PURPOSE = "vrf-p256"
_RAW_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")
_CURVE_ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of BLS12-381."""


def read_private(path: Path) -> bytes:
    """Content of ``path``; raises KeystoreMissing, KeystoreExposed or, over 64 KiB, KeystoreMalformed."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise KeystoreMalformed("This is no regular file", path, "Name the keystore file itself.")
            exposed = stat.S_IRWXO if _is_credential(path) else stat.S_IRWXG | stat.S_IRWXO
            if os.name == "posix" and mode & exposed:
                shown = f"{path}, mode {stat.S_IMODE(mode):04o}"
                raise KeystoreExposed("Other users of this machine can reach the file", shown, f"Run: chmod 600 {path}")
            content = file.read(LARGEST + 1)
    except IsADirectoryError as error:
        raise KeystoreMalformed("This is a folder", path, "Name the keystore file itself.") from error
    except OSError as error:
        raise KeystoreMissing(f"The file cannot be read: {error.strerror}", path, "Check the path.") from error
    if len(content) > LARGEST:
        raise KeystoreMalformed("The file is too long for a keystore", path, "Name the keystore file itself.")
    return content


def _is_credential(path: Path) -> bool:
    """Whether systemd handed the file to this service alone (LoadCredential=).

    It grants the service's user access by an access-control list, whose mask shows as the group's mode; the folder lets
    nobody else in.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder or path.parent != Path(folder):
        return False
    return not stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_IRWXO | stat.S_IWGRP)


def create_private(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; raises KeystoreExists rather than replace one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        create_file(path, content)
    except FileExistsError as error:
        raise KeystoreExists(
            "A file is there already", path, "Choose another path, or move the old key away."
        ) from error


class _Pairings:
    """What py_ecc calls G2ProofOfPossession, loaded on first use."""

    def __getattr__(self, name: str) -> Any:
        from py_ecc.bls import G2ProofOfPossession  # type: ignore[attr-defined]

        return getattr(G2ProofOfPossession, name)


@cache
def _keyfiles() -> ModuleType:
    """eth_keyfile, without what its version 4 (EIP-2335, for validators) costs, which nobody here reads.

    It imports py_ecc, which takes 0.8 s of processor time and raises the interpreter's bound on recursion to 100,000
    for the whole process; from there a stranger's deeply nested JSON overflows the stack, and the process dies without
    an exception. So two names stand in for py_ecc: the one number that is wanted at once, and an object that imports
    the real thing if it is ever used.
    """
    stand_ins: dict[str, dict[str, Any]] = {
        "py_ecc.bls": {"G2ProofOfPossession": _Pairings()},
        "py_ecc.bls12_381": {"curve_order": _CURVE_ORDER},
    }
    missing = {name: content for name, content in stand_ins.items() if name not in sys.modules}
    before = sys.getrecursionlimit()
    for name, content in missing.items():
        module = ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
    try:
        return importlib.import_module("eth_keyfile")
    finally:
        for name in missing:
            del sys.modules[name]
        sys.setrecursionlimit(before)


def read_password(
    password_file: Path | None = None,
    *,
    confirm: bool = False,
    purpose: str = "the keystore",
    ask: Callable[[str], str] = getpass.getpass,
) -> str:
    """The password, without the line break at its end.

    ``confirm`` asks twice, for a new key. Raises PasswordMissing if no source has one, KeystoreExposed if others can
    read the file.
    """
    path = password_file or _from_environment()
    if path is not None:
        return _from_file(path)
    if not sys.stdin.isatty():
        raise PasswordMissing(
            f"There is no password for {purpose}",
            "no terminal",
            f"Use --password-file, or let {ENVIRONMENT} name a file with the password (mode 0600).",
        )
    return _from_terminal(purpose, confirm, ask)


def _from_environment() -> Path | None:
    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else None


def _from_file(path: Path) -> str:
    password = read_private(path).decode("utf-8", errors="surrogateescape").rstrip("\r\n")
    if not password:
        raise PasswordMissing("The password file is empty", path, "Write the password into its first line.")
    return password


def _from_terminal(purpose: str, confirm: bool, ask: Callable[[str], str]) -> str:
    password = ask(f"Password for {purpose}: ")
    if not password:
        raise PasswordMissing("The password is empty", purpose, "Type a password.")
    if confirm and ask("The same again: ") != password:
        raise PasswordMissing("The two passwords differ", purpose, "Start again.")
    return password


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
    create = _keyfiles().create_keyfile_json
    content: dict[str, Any] = create(secret, encoded, version=3, kdf="scrypt", iterations=scrypt_n)
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    create_private(path, json.dumps(content, indent=1).encode("utf-8"))


def _read(path: Path) -> dict[str, Any]:
    remove_unfinished(path)
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
    decode = _keyfiles().decode_keyfile_json
    try:
        secret = bytes(decode(content, password.encode("utf-8", errors="surrogateescape")))
    except ValueError as error:
        if "MAC mismatch" in str(error):
            raise WrongPassword("The password does not open the keyfile", path, PASSWORD_REMEDY) from error
        raise KeystoreMalformed(f"The keyfile cannot be opened: {error}", path, "Restore it from a backup.") from error
    except (KeyError, TypeError) as error:
        raise KeystoreMalformed("The keyfile lacks a field", f"{path}: {error}", "Restore it from a backup.") from error
    if len(secret) != 32:
        raise KeystoreMalformed("The keyfile holds no 32-byte key", path, "Restore it from a backup.")
    return secret
