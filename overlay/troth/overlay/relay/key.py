"""A relay's long-term X25519 key: a PEM file of mode 0600 beside its TLS key."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.errors import RelayMisconfigured
from troth.overlay.relay.pem_key import create_pem_key, load_pem_key

_KIND = "handshake key"


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
