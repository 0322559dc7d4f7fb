"""A relay's private keys, as PEM files of mode 0600 that are made once and never overwritten.

Clients put no two relays of one operator on a path, so whoever runs several copies one key to all of them.
"""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.chain.new_files import remove_unfinished
from troth.transport.errors import RelayMisconfigured

_KIND = "handshake key"
_OPERATOR_KIND = "operator key"


def create_pem_key(path: Path, key: PrivateKeyTypes, kind: str) -> None:
    """Write a key ("operator key"); raises RelayMisconfigured if there is a file already."""
    # Not at the top: `relay start` makes no key, and need not load the errors of the contract for it.
    from troth.chain.errors import KeystoreExists
    from troth.chain.keystore import create_private

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        create_private(path, pem)
    except KeystoreExists as error:
        article = "An" if kind[0] in "aeiou" else "A"
        raise RelayMisconfigured(f"{article} {kind} is already there", path, "Load it, or move it away.") from error


def load_pem_key(path: Path, kind: str) -> PrivateKeyTypes:
    """Read a key that nobody else can read; raises RelayMisconfigured naming the file and the fix."""
    remove_unfinished(path)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise RelayMisconfigured(f"The {kind} cannot be read", error, "Run: troth relay init") from error
    if mode & 0o077:
        raise RelayMisconfigured(f"The {kind} is readable by others ({mode:04o})", path, f"chmod 600 {path}")
    return key


def create_handshake_key(path: Path) -> X25519PrivateKey:
    """Make a key; an existing file is never overwritten (raises RelayMisconfigured)."""
    key = X25519PrivateKey.generate()
    create_pem_key(path, key, _KIND)
    return key


def load_handshake_key(path: Path) -> X25519PrivateKey:
    """Read the key; raises RelayMisconfigured naming the file and the fix."""
    key = load_pem_key(path, _KIND)
    if not isinstance(key, X25519PrivateKey):
        raise RelayMisconfigured("The handshake key is of another kind", path, "It must be X25519.")
    return key


def create_operator_key(path: Path) -> bytes:
    """Make a key; an existing file is never overwritten (raises RelayMisconfigured). The 32-byte secret."""
    key = ec.generate_private_key(ec.SECP256K1())
    create_pem_key(path, key, _OPERATOR_KIND)
    return _secret(key)


def load_operator_key(path: Path) -> bytes:
    """The 32-byte secret; raises RelayMisconfigured naming the file and the fix."""
    key = load_pem_key(path, _OPERATOR_KIND)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256K1):
        raise RelayMisconfigured("The operator key is of another kind", path, "It must be secp256k1.")
    return _secret(key)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(32, "big")
