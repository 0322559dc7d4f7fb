"""From content to cloves, whole or while it grows: encrypt, cut, share the key, tag (PlanetServe section 3.2).

The AES key is HKDF-SHA256 (RFC 5869) of the Shamir-shared key, followed by the session's secret where there is one. A
shared key serves one segment, so nonces are numbers: 0 for the content, index + 1 for a fragment's tag.

Header and number of a segment are its associated data, and the last one says that it is the last. So a segment in
another place, of another message, or after the end is refused, and a message without its last segment is not whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sida import shamir
from troth.overlay.sida.clove import (
    MESSAGE_ID_BYTES,
    SHARE_BYTES,
    CloveSegment,
    Threshold,
    check_length,
    commitment,
    with_index,
)
from troth.overlay.sida.erasure import Buffer, code_for
from troth.overlay.sida.errors import MessageEnded, WrongThreshold

KEY_BYTES = 32
LEAST_SECRET_BYTES = 16
_HASH = SHA256()
_SALT = b"troth s-ida v1"
_NONCES = [number.to_bytes(12, "big") for number in range(33)]
_CONTENT_NONCE, *_FRAGMENT_NONCES = _NONCES
RandomBytes = Callable[[int], bytes]
SEGMENT_BYTES = 64 * 1024
"""What both ends hold of a long message at a time; small enough that a lost path costs little."""
MOST_SEGMENTS = 1 << 32


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


def prepare(
    content: bytes,
    threshold: Threshold,
    message_id: bytes,
    *,
    number: int = 0,
    last: bool = True,
    secret: bytes = b"",
    random_bytes: RandomBytes = os.urandom,
) -> list[bytes]:
    """The n cloves of one segment, as they travel.

    Args:
        content: at most 1 MiB.
        threshold: n and k.
        message_id: 16 bytes, fresh for a message and equal in its segments.
        number: the segment's place, from 0.
        last: whether the message ends here.
        secret: what only the two ends know; with it, k paths together still read nothing.
        random_bytes: another source than the system's is for frozen vectors alone.

    Raises:
        WrongThreshold: for a short secret, or none with k = 1.
        ContentTooLarge: for more than 1 MiB.
    """
    check_length(content)
    check_secret(threshold, secret)
    segment = CloveSegment(threshold, message_id, number, last, len(content))
    associated = segment.associated
    randomness = random_bytes(threshold.k * SHARE_BYTES)
    shared_key, coefficients = randomness[:SHARE_BYTES], randomness[SHARE_BYTES:]
    key = SegmentKey(shared_key, secret)
    fragments = code_for(threshold.n, threshold.k).encode(key.seal(content, associated))
    shares = shamir.split(shared_key, threshold.n, threshold.k, coefficients)
    tags = [key.tag(index, fragment) for index, fragment in enumerate(fragments)]
    committed = [commitment(associated, index, shares[index], tags[index]) for index in range(threshold.n)]
    announced = b"".join((associated, *committed))
    return [
        b"".join((with_index(announced, index), shares[index], tags[index], fragment))
        for index, fragment in enumerate(fragments)
    ]


class Sender:
    """Makes the cloves of one message, a segment at a time. Raises WrongThreshold as `prepare` does."""

    def __init__(self, threshold: Threshold, secret: bytes = b"", random_bytes: RandomBytes = os.urandom) -> None:
        check_secret(threshold, secret)
        self._threshold = threshold
        self._secret = secret
        self._random_bytes = random_bytes
        self._number = 0
        self._ended = False
        self.message_id = random_bytes(MESSAGE_ID_BYTES)

    def send(self, content: bytes, *, last: bool = False) -> list[bytes]:
        """The n cloves of the next segment, clove `index` for path `index`; an empty last one is fine.

        Raises:
            MessageEnded: after the last segment.
            ContentTooLarge: for more than 1 MiB.
        """
        if self._ended or self._number >= MOST_SEGMENTS:
            raise MessageEnded("This message has had its last segment", self._number, "Use a new Sender.")
        cloves = prepare(
            content,
            self._threshold,
            self.message_id,
            number=self._number,
            last=last,
            secret=self._secret,
            random_bytes=self._random_bytes,
        )
        self._number += 1
        self._ended = last
        return cloves

    def cut(self, message: bytes, segment_bytes: int = SEGMENT_BYTES) -> Iterator[list[bytes]]:
        """The cloves of a whole message, segment after segment; the last one is marked."""
        for at in range(0, max(len(message), 1), segment_bytes):
            yield self.send(message[at : at + segment_bytes], last=at + segment_bytes >= len(message))
