"""The keys of one path between client and destination, through which its frames pass.

    frame  = AES-256-GCM(forward key,  nonce = zeros 4 | counter 8)
    answer = AES-256-GCM(backward key, nonce = answer 4 | counter 8)

The counter is the client's, one for each frame of the path; answers are numbered within the frame that they answer.
So a proxy can neither repeat, move, swap nor make up a frame or an answer, and sees nothing that another path's proxy
sees.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sessions.errors import MalformedFrame, ReplayedFrame
from troth.overlay.sessions.opening import Opening

_SALT = b"troth session 1"
WINDOW = 1024
MOST_FRAMES = 1 << 40


class PathKeys:
    """Seals and opens what passes on one path."""

    __slots__ = ("_backward", "_forward")

    def __init__(self, opening: Opening) -> None:
        derived = HKDF(SHA256(), 64, _SALT, opening.path_id).derive(opening.path_secret + opening.session_secret)
        self._forward, self._backward = AESGCM(derived[:32]), AESGCM(derived[32:])

    def seal_frame(self, counter: int, plain: bytes) -> bytes:
        """The client's side."""
        return self._forward.encrypt(_nonce(0, counter), plain, None)

    def open_frame(self, counter: int, sealed: bytes) -> bytes:
        """The destination's side; raises MalformedFrame."""
        return _opened(self._forward, _nonce(0, counter), sealed)

    def seal_answer(self, counter: int, answer: int, plain: bytes) -> bytes:
        """The destination's side: answer number `answer` to frame `counter`."""
        return self._backward.encrypt(_nonce(answer, counter), plain, None)

    def open_answer(self, counter: int, answer: int, sealed: bytes) -> bytes:
        """The client's side; raises MalformedFrame."""
        return _opened(self._backward, _nonce(answer, counter), sealed)


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
