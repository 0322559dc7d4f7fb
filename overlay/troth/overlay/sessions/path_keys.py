"""The keys of one path between client and destination, through which its frames pass.

    frame  = AES-256-GCM(forward key,  nonce = zeros 4 | counter 8)
    answer = AES-256-GCM(HKDF(backward key, salt), nonce = answer 4 | counter 8)

The counter is the client's, one for each frame of the path; answers are numbered within the frame that they answer.
So a proxy can neither repeat, move, swap nor make up a frame or an answer, and sees nothing that another path's proxy
sees.

The salt is the destination's, 16 random bytes before the first answer to each frame. A destination that has forgotten a
path, after a restart or because strangers crowded it out, can be made to take it up again by who repeats its opening.
It then answers the same frame with other words; without the salt, under a nonce that has been used.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sessions.errors import MalformedFrame, ReplayedFrame
from troth.overlay.sessions.opening import Opening

_SALT = b"troth session 1"
WINDOW = 1024
MOST_FRAMES = 1 << 40
SALT_BYTES = 16


class PathKeys:
    """Seals and opens what passes on one path."""

    __slots__ = ("_backward", "_forward")

    def __init__(self, opening: Opening) -> None:
        derived = HKDF(SHA256(), 64, _SALT, opening.path_id).derive(opening.path_secret + opening.session_secret)
        self._forward, self._backward = AESGCM(derived[:32]), derived[32:]

    def seal_frame(self, counter: int, plain: bytes) -> bytes:
        """The client's side."""
        return self._forward.encrypt(_nonce(0, counter), plain, None)

    def open_frame(self, counter: int, sealed: bytes) -> bytes:
        """The destination's side; raises MalformedFrame."""
        return _opened(self._forward, _nonce(0, counter), sealed)

    def sealer(self, counter: int) -> AnswerSealer:
        """The destination's side, for the answers to frame `counter`."""
        salt = os.urandom(SALT_BYTES)
        return AnswerSealer(self._answer_cipher(salt), salt, counter)

    def opener(self, counter: int) -> AnswerOpener:
        """The client's side."""
        return AnswerOpener(self._answer_cipher, counter)

    def _answer_cipher(self, salt: bytes) -> AESGCM:
        return AESGCM(HKDF(SHA256(), 32, salt, _SALT).derive(self._backward))


class AnswerSealer:
    """Seals the answers to one frame, in order."""

    __slots__ = ("_cipher", "_counter", "_number", "_salt")

    def __init__(self, cipher: AESGCM, salt: bytes, counter: int) -> None:
        self._cipher, self._salt, self._counter, self._number = cipher, salt, counter, 0

    def seal(self, plain: bytes) -> bytes:
        """The next answer."""
        salt = b"" if self._number else self._salt
        sealed = self._cipher.encrypt(_nonce(self._number, self._counter), plain, None)
        self._number += 1
        return salt + sealed


class AnswerOpener:
    """Opens them, in the same order."""

    __slots__ = ("_cipher", "_cipher_of", "_counter", "_number")

    def __init__(self, cipher_of: Callable[[bytes], AESGCM], counter: int) -> None:
        self._cipher: AESGCM | None = None
        self._cipher_of, self._counter, self._number = cipher_of, counter, 0

    def open(self, sealed: bytes) -> bytes:
        """The next answer; raises MalformedFrame."""
        if self._cipher is None:
            salt, sealed = sealed[:SALT_BYTES], sealed[SALT_BYTES:]
            if len(salt) < SALT_BYTES:
                raise MalformedFrame("A first answer is too short", len(salt))
            self._cipher = self._cipher_of(salt)
        plain = _opened(self._cipher, _nonce(self._number, self._counter), sealed)
        self._number += 1
        return plain


class CounterWindow:
    """Accepts each counter once, in any order within the newest 1,024 (RFC 4303 section 3.4.3)."""

    __slots__ = ("_highest", "_seen")

    def __init__(self) -> None:
        self._highest, self._seen = -1, 0

    def accept(self, counter: int) -> None:
        """Note a counter whose frame was authentic; raises ReplayedFrame."""
        ahead = counter - self._highest
        if ahead > 0:
            self._seen = ((self._seen << min(ahead, WINDOW)) | 1) & ((1 << WINDOW) - 1)
            self._highest = counter
            return
        bit = 1 << -ahead if -ahead < WINDOW else 0
        if not bit or self._seen & bit:
            raise ReplayedFrame("This frame was seen before, or is too old to tell", counter)
        self._seen |= bit


def _nonce(answer: int, counter: int) -> bytes:
    return answer.to_bytes(4, "big") + counter.to_bytes(8, "big")


def _opened(cipher: AESGCM, nonce: bytes, sealed: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError) as error:
        raise MalformedFrame("A frame was changed, moved or made up on its way") from error
