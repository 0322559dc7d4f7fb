"""A relay's long-term X25519 key: a PEM file of mode 0600 beside its TLS key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.errors import RelayMisconfigured


def create_handshake_key(path: Path) -> X25519PrivateKey:
    """Make a key; an existing file is never overwritten (raises RelayMisconfigured)."""
    key = X25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise RelayMisconfigured("A handshake key is already there", path, "Load it, or move it away.") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return key


def load_handshake_key(path: Path) -> X25519PrivateKey:
    """Read the key; raises RelayMisconfigured naming the file and the fix."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise RelayMisconfigured("The handshake key cannot be read", error, "Run: troth relay init") from error
    if mode & 0o077:
        raise RelayMisconfigured(f"The handshake key is readable by others ({mode:04o})", path, f"chmod 600 {path}")
    if not isinstance(key, X25519PrivateKey):
        raise RelayMisconfigured("The handshake key is of another kind", path, "It must be X25519.")
    return key
