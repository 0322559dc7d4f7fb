"""A relay's private keys as PEM files of mode 0600, which are made once and never overwritten."""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from troth.overlay.errors import RelayMisconfigured


def create_pem_key(path: Path, key: PrivateKeyTypes, kind: str) -> None:
    """Write a key ("operator key"); raises RelayMisconfigured if there is a file already."""
    # Not at the top: `relay start` makes no key, and need not load the errors of the contract for it.
    from troth.chain.errors import KeystoreExists
    from troth.chain.private_files import create_private

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        create_private(path, pem)
    except KeystoreExists as error:
        article = "An" if kind[0] in "aeiou" else "A"
        raise RelayMisconfigured(f"{article} {kind} is already there", path, "Load it, or move it away.") from error


def load_pem_key(path: Path, kind: str) -> PrivateKeyTypes:
    """Read a key that nobody else can read; raises RelayMisconfigured naming the file and the fix."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise RelayMisconfigured(f"The {kind} cannot be read", error, "Run: troth relay init") from error
    if mode & 0o077:
        raise RelayMisconfigured(f"The {kind} is readable by others ({mode:04o})", path, f"chmod 600 {path}")
    return key
