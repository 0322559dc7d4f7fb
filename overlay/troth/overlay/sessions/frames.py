"""What is said on a path, and how it is delivered (docs/sessions.md).

Delivered to the destination, numbers big-endian:

    version 1 = 1 | 1 | opening 138 | counter 8 | sealed frame      until an answer has shown that the path is known
    version 1 = 1 | 2 | path id 16  | counter 8 | sealed frame

A frame, under the path's key: kind 1 | content. Answers to it, under the path's other key: kind 1 | content.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from troth.overlay.sessions.errors import MalformedFrame
from troth.overlay.sessions.opening import PATH_ID_BYTES, SEALED_BYTES
from troth.overlay.sessions.path_keys import MOST_FRAMES
from troth.overlay.sida.clove import MESSAGE_ID_BYTES, MOST_PATHS

VERSION = 1
_OPENED, _KNOWN = 1, 2
_COUNTER = 8
_HANDLE = struct.Struct(f">{MESSAGE_ID_BYTES}sBI")
_ACKNOWLEDGED = struct.Struct(f">{MESSAGE_ID_BYTES}sI")


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
