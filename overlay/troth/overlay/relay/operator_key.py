"""The secp256k1 key of who runs a relay: a PEM file of mode 0600, fresh by default.

Clients put no two relays of one operator on a path, so whoever runs several copies one key to all of them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from troth.overlay.errors import RelayMisconfigured


def create_operator_key(path: Path) -> bytes:
    """Make a key; an existing file is never overwritten (raises RelayMisconfigured). The 32-byte secret."""
    key = ec.generate_private_key(ec.SECP256K1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise RelayMisconfigured("An operator key is already there", path, "Load it, or move it away.") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return _secret(key)


def load_operator_key(path: Path) -> bytes:
    """The 32-byte secret; raises RelayMisconfigured naming the file and the fix."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise RelayMisconfigured("The operator key cannot be read", error, "Run: troth relay init") from error
    if mode & 0o077:
        raise RelayMisconfigured(f"The operator key is readable by others ({mode:04o})", path, f"chmod 600 {path}")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256K1):
        raise RelayMisconfigured("The operator key is of another kind", path, "It must be secp256k1.")
    return _secret(key)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(32, "big")
