"""What only the holder of an X25519 key reads (HPKE, RFC 9180, base mode): openings of a check, for the client alone.

DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. ``context`` says what is sealed and for which order, so that
nothing sealed elsewhere opens in its place.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from troth.transport.errors import SealBroken

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def public_key(secret: bytes) -> bytes:
    """The 32-byte key that goes with a 32-byte secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def seal(plain: bytes, key: bytes, context: bytes) -> bytes:
    """``plain`` for the holder of the 32-byte ``key``; raises SealBroken where that is no key."""
    try:
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(key), context)
    except ValueError as error:
        raise SealBroken("Nothing can be sealed to this key", key.hex(), "Use an X25519 public key.") from error


def unseal(sealed: bytes, secret: bytes, context: bytes) -> bytes:
    """Inverse of ``seal``; raises SealBroken where it was sealed to another key, for another context, or changed."""
    try:
        return _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(secret), context)
    except (InvalidTag, ValueError) as error:
        raise SealBroken("The seal does not open", len(sealed), "Ask again, for this order's key.") from error
