"""The secp256k1 key of who runs a relay: a PEM file of mode 0600, fresh by default.

Clients put no two relays of one operator on a path, so whoever runs several copies one key to all of them.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from troth.overlay.errors import RelayMisconfigured
from troth.overlay.relay.pem_key import create_pem_key, load_pem_key

_KIND = "operator key"


def create_operator_key(path: Path) -> bytes:
    """Make a key; an existing file is never overwritten (raises RelayMisconfigured). The 32-byte secret."""
    key = ec.generate_private_key(ec.SECP256K1())
    create_pem_key(path, key, _KIND)
    return _secret(key)


def load_operator_key(path: Path) -> bytes:
    """The 32-byte secret; raises RelayMisconfigured naming the file and the fix."""
    key = load_pem_key(path, _KIND)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256K1):
        raise RelayMisconfigured("The operator key is of another kind", path, "It must be secp256k1.")
    return _secret(key)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(32, "big")
