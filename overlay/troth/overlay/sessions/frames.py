"""What is said on a path, and the keys that it passes through between client and destination.

docs/reference/sessions.md has the format.

    frame  = AES-256-GCM(forward key,  nonce = zeros 4 | counter 8)
    answer = AES-256-GCM(HKDF(backward key, salt), nonce = answer 4 | counter 8)

The counter is the client's, one for each frame of the path; answers are numbered within the frame that they answer.
So a proxy can neither repeat, move, swap nor make up a frame or an answer, and sees nothing that another path's proxy
sees.

The salt is the destination's, 16 random bytes before the first answer to each frame. A destination that has forgotten a
path, after a restart or because strangers crowded it out, can be made to take it up again by who repeats its opening.
It then answers the same frame with other words; without the salt, under a nonce that has been used.

Delivered to the destination, numbers big-endian:

    version 1 = 1 | 1 | opening 138 | counter 8 | sealed frame      until an answer has shown that the path is known
    version 1 = 1 | 2 | path id 16  | counter 8 | sealed frame

A frame, under the path's key: kind 1 | content. Answers to it, under the path's other key: kind 1 | content.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sessions.errors import MalformedFrame, ReplayedFrame
from troth.overlay.sessions.opening import PATH_ID_BYTES, SEALED_BYTES, PathHandshake
from troth.overlay.sida.clove import MESSAGE_ID_BYTES, MOST_PATHS

_SALT = b"troth session 1"
WINDOW = 1024
MOST_FRAMES = 1 << 40
SALT_BYTES = 16
VERSION = 1
_OPENED, _KNOWN = 1, 2
_COUNTER = 8
_HANDLE = struct.Struct(f">{MESSAGE_ID_BYTES}sBI")
_ACKNOWLEDGED = struct.Struct(f">{MESSAGE_ID_BYTES}sI")


class PathKeys:
    """Seals and opens what passes on one path."""

    __slots__ = ("_backward", "_forward")

    def __init__(self, opening: PathHandshake) -> None:
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


class FrameKind(IntEnum):
    """What a client says. CLOVE and HANDLE lend the destination the exchange that they came by, to answer through."""

    CLOVE = 1
    HANDLE = 2
    ACKNOWLEDGE = 3
    CANCEL = 4
    CLOSE = 5


class AnswerKind(IntEnum):
    """What a destination says."""

    CLOVE = 1
    DONE = 2
    UNKNOWN = 3
    BUSY = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a proxy hands it over: exactly one of `opening` and `path_id` is not empty."""

    opening: bytes
    path_id: bytes
    counter: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class HandleFrame:
    """Another exchange through which clove `index` of the answer to `request` may come, from segment `after` on."""

    request: bytes
    index: int
    after: int


@dataclass(frozen=True, slots=True)
class AcknowledgeFrame:
    """All segments of the answer to `request` before `before` have been read."""

    request: bytes
    before: int


def encode_opening(opening: bytes, counter: int, sealed: bytes) -> bytes:
    """The delivery of a frame on a path that the destination may not know yet."""
    return bytes((VERSION, _OPENED)) + opening + counter.to_bytes(_COUNTER, "big") + sealed


def encode_known(path_id: bytes, counter: int, sealed: bytes) -> bytes:
    """The delivery of a frame on a path that the destination knows."""
    return bytes((VERSION, _KNOWN)) + path_id + counter.to_bytes(_COUNTER, "big") + sealed


def parse_delivery(message: bytes) -> Delivery:
    """Take a delivery apart; raises MalformedFrame."""
    if len(message) < 2 or message[0] != VERSION or message[1] not in {_OPENED, _KNOWN}:
        raise MalformedFrame("No delivery of this version", message[:2].hex(), "Both ends must run the same version.")
    known = message[1] == _KNOWN
    start = 2 + (PATH_ID_BYTES if known else SEALED_BYTES)
    end = start + _COUNTER
    if len(message) <= end:
        raise MalformedFrame("A delivery is too short", len(message))
    counter = int.from_bytes(message[start:end], "big")
    if counter >= MOST_FRAMES:
        raise MalformedFrame("A path carries no so many frames", counter)
    name = message[2:start]
    return Delivery(b"" if known else name, name if known else b"", counter, message[end:])


def handle_frame(frame: HandleFrame) -> bytes:
    """The bytes of a HANDLE."""
    return bytes((FrameKind.HANDLE,)) + _HANDLE.pack(frame.request, frame.index, frame.after)


def acknowledge_frame(frame: AcknowledgeFrame) -> bytes:
    """The bytes of an ACKNOWLEDGE."""
    return bytes((FrameKind.ACKNOWLEDGE,)) + _ACKNOWLEDGED.pack(frame.request, frame.before)


def cancel_frame(request: bytes) -> bytes:
    """The bytes of a CANCEL."""
    return bytes((FrameKind.CANCEL,)) + request


def read_handle(content: bytes) -> HandleFrame:
    """Raises MalformedFrame."""
    if len(content) != _HANDLE.size or content[MESSAGE_ID_BYTES] >= MOST_PATHS:
        raise MalformedFrame("A HANDLE has a request, an index and a segment", len(content))
    return HandleFrame(*_HANDLE.unpack(content))


def read_acknowledge(content: bytes) -> AcknowledgeFrame:
    """Raises MalformedFrame."""
    if len(content) != _ACKNOWLEDGED.size:
        raise MalformedFrame("An ACKNOWLEDGE has a request and a segment", len(content))
    return AcknowledgeFrame(*_ACKNOWLEDGED.unpack(content))


def read_request_id(content: bytes) -> bytes:
    """The content of a CANCEL; raises MalformedFrame."""
    if len(content) != MESSAGE_ID_BYTES:
        raise MalformedFrame("A request id has 16 bytes", len(content))
    return content


def split_frame(plain: bytes) -> tuple[FrameKind, bytes]:
    """Kind and content of a frame; raises MalformedFrame."""
    try:
        return FrameKind(plain[0]), plain[1:]
    except (IndexError, ValueError) as error:
        raise MalformedFrame("A frame of an unknown kind", plain[:1].hex()) from error


def split_answer(plain: bytes) -> tuple[AnswerKind, bytes]:
    """Kind and content of an answer; raises MalformedFrame."""
    try:
        return AnswerKind(plain[0]), plain[1:]
    except (IndexError, ValueError) as error:
        raise MalformedFrame("An answer of an unknown kind", plain[:1].hex()) from error
