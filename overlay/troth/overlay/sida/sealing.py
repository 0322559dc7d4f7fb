"""The key of one segment: AES-256-GCM over the content, and over each fragment.

The AES key is HKDF-SHA256 (RFC 5869) of the Shamir-shared key, followed by the session's secret where there is one. A
shared key serves one segment, so nonces are numbers: 0 for the content, index + 1 for a fragment's tag.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sida.clove import Threshold
from troth.overlay.sida.erasure import Buffer
from troth.overlay.sida.errors import WrongThreshold

KEY_BYTES = 32
LEAST_SECRET_BYTES = 16
_HASH = SHA256()
_SALT = b"troth s-ida v1"
_NONCES = [number.to_bytes(12, "big") for number in range(33)]
_CONTENT_NONCE, *_FRAGMENT_NONCES = _NONCES


def check_secret(threshold: Threshold, secret: bytes) -> None:
    """Raise WrongThreshold for a short secret, and for k = 1 without one, since every path could then read."""
    if secret and len(secret) < LEAST_SECRET_BYTES:
        raise WrongThreshold(f"A secret has at least {LEAST_SECRET_BYTES} bytes", len(secret))
    if threshold.k == 1 and not secret:
        raise WrongThreshold("With k = 1 and no secret each path reads the message", "k = 1", "Use k ≥ 2.")


class SegmentKey:
    """Seals and opens one segment."""

    def __init__(self, shared_key: bytes, secret: bytes) -> None:
        key = HKDF(_HASH, KEY_BYTES, _SALT, b"").derive(shared_key + secret)
        self._cipher = AESGCM(key)

    def seal(self, content: bytes, associated: bytes) -> bytes:
        """Ciphertext and tag, 16 bytes longer than the content; `associated` is the segment's header."""
        return self._cipher.encrypt(_CONTENT_NONCE, content, associated)

    def open(self, ciphertext: Buffer, associated: bytes) -> bytes | None:
        """The content, or None if this is not what was sealed."""
        try:
            return self._cipher.decrypt(_CONTENT_NONCE, ciphertext, associated)
        except InvalidTag:
            return None

    def tag(self, index: int, fragment: Buffer) -> bytes:
        """16 bytes over one fragment (GMAC)."""
        return self._cipher.encrypt(_FRAGMENT_NONCES[index], b"", fragment)

    def is_tag(self, index: int, fragment: bytes, tag: bytes) -> bool:
        """Whether `tag` is that of the fragment."""
        try:
            self._cipher.decrypt(_FRAGMENT_NONCES[index], tag, fragment)
        except InvalidTag:
            return False
        return True
