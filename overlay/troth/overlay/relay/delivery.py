"""Between a proxy and a destination: messages and answers as frames on one pinned TLS 1.3 connection.

    kind 1 | exchange 16 | length 4 | content

The exchange id is the proxy's, random for each message, so that two messages of one user do not look related. A
destination answers as often as it likes; ANSWER says that more may come, FINAL that none will.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from troth.transport.errors import FrameTooLarge, MalformedCell

ALPN = "troth-delivery/1"
EXCHANGE = 16
_HEAD = struct.Struct(f">B{EXCHANGE}sI")


class DeliveryKind(IntEnum):
    """What a frame is; MESSAGE and CANCEL go to the destination, the others come from it."""

    MESSAGE = 0
    ANSWER = 1
    FINAL = 2
    REFUSED = 3
    CANCEL = 4


_KINDS = {int(kind): kind for kind in DeliveryKind}


@dataclass(frozen=True, slots=True)
class DeliveryFrame:
    """One frame."""

    kind: DeliveryKind
    exchange: bytes
    content: bytes = b""


def encode_frame(frame: DeliveryFrame) -> bytes:
    """The bytes of a frame."""
    return _HEAD.pack(frame.kind, frame.exchange, len(frame.content)) + frame.content


class FrameReader:
    """Cuts a byte stream into frames; holds at most one frame of `largest` bytes of content."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[DeliveryFrame]:
        """The frames completed by `data`; raises MalformedCell or FrameTooLarge."""
        rest = self._rest
        rest += data
        while len(rest) >= _HEAD.size:
            kind, exchange, length = _HEAD.unpack_from(rest)
            if kind not in _KINDS:
                raise MalformedCell("A delivery frame has an unknown kind", kind)
            if length > self._largest:
                raise FrameTooLarge(f"A delivery has at most {self._largest} bytes", length)
            end = _HEAD.size + length
            if len(rest) < end:
                return
            frame = DeliveryFrame(_KINDS[kind], exchange, bytes(rest[_HEAD.size : end]))
            del rest[:end]
            yield frame
