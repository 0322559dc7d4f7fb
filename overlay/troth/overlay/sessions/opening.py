"""How a path of a session begins: secrets sealed to the destination's key (HPKE, RFC 9180, base mode).

DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. Each path seals on its own, so that two proxies hold nothing that
they could compare; inside, all paths of a session bring the same session secret. A proxy that seals a message of its
own opens a session of its own.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from troth.overlay.sessions.errors import MalformedFrame, OpeningRefused
from troth.overlay.sida.clove import Threshold
from troth.overlay.sida.errors import WrongThreshold

SECRET_BYTES = 32
PATH_ID_BYTES = 16
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_INFO = b"troth session 1 "
_PLAIN = struct.Struct(f">{SECRET_BYTES}s{SECRET_BYTES}s{PATH_ID_BYTES}sQBB")
SEALED_BYTES = 32 + _PLAIN.size + 16
"""Encapsulated key, ciphertext, tag."""


@dataclass(frozen=True, slots=True)
class PathHandshake:
    """What a client tells its destination when a path begins.

    Args:
        session_secret: 32 bytes, the same on each path of a session; with it k colluding paths still read nothing.
        path_secret: 32 bytes of this path alone.
        path_id: 16 random bytes by which later frames of this path name it.
        issued: Unix seconds.
        threshold: n and k of every message of the session.
    """

    session_secret: bytes = field(repr=False)
    path_secret: bytes = field(repr=False)
    path_id: bytes
    issued: int
    threshold: Threshold

    @classmethod
    def new(cls, session_secret: bytes, issued: int, threshold: Threshold) -> PathHandshake:
        """A path with fresh secrets."""
        return cls(session_secret, os.urandom(SECRET_BYTES), os.urandom(PATH_ID_BYTES), issued, threshold)

    def seal(self, seal_key: bytes, destination: bytes) -> bytes:
        """138 bytes that only the holder of `seal_key` (X25519, 32 bytes) at `destination` (its name) can open."""
        plain = _PLAIN.pack(
            self.session_secret, self.path_secret, self.path_id, self.issued, self.threshold.n, self.threshold.k
        )
        try:
            return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(seal_key), _INFO + destination)
        except ValueError as error:
            raise OpeningRefused(
                "The destination's seal key cannot be used", seal_key.hex(), "Use another destination."
            ) from error


def open_sealed(sealed: bytes, secret: X25519PrivateKey, destination: bytes) -> PathHandshake:
    """What was sealed; raises OpeningRefused for another key or changed bytes, MalformedFrame for a wrong threshold."""
    if len(sealed) != SEALED_BYTES:
        raise MalformedFrame(f"An opening has {SEALED_BYTES} bytes", len(sealed))
    try:
        plain = _SUITE.decrypt(sealed, secret, _INFO + destination)
    except (InvalidTag, ValueError) as error:
        raise OpeningRefused(
            "An opening was sealed to another key, or changed", remedy="Fetch the directory again: the key may be new."
        ) from error
    session_secret, path_secret, path_id, issued, n, k = _PLAIN.unpack(plain)
    try:
        return PathHandshake(session_secret, path_secret, path_id, issued, Threshold(n, k))
    except WrongThreshold as error:
        raise MalformedFrame("An opening names an impossible threshold", f"n = {n}, k = {k}") from error
