"""What travels inside the innermost layer: kind 1 | length 2 | content | zeros to the end of the cell.

EXTEND    relay 32 | handshake 65                       to the last hop
EXTENDED  handshake 64                                  from it
DATA      message 4 | flags 1 | [total 4 [destination 32]] | fragment
CREDIT    cells 2
PING      number 4                                      answered by PONG with the same number
BROKEN    reason 1                                      from the hop behind which the circuit ended
FAILED    message 4 | reason 1                          a message that the proxy could not deliver
PADDING   nothing
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from troth.overlay.cells.format import HEADER, LARGE, SMALL, STACK, TAG
from troth.overlay.errors import MalformedCell

_HEAD = struct.Struct(">BH")
BODY_OVERHEAD = HEADER + STACK + TAG
CAPACITY = {size: size - BODY_OVERHEAD - _HEAD.size for size in (SMALL, LARGE)}
"""Bytes of content in a parcel, by cell size: 932 and 4,004."""


class Kind(IntEnum):
    """What a parcel is."""

    PADDING = 0
    EXTEND = 1
    EXTENDED = 2
    DATA = 3
    CREDIT = 4
    PING = 5
    PONG = 6
    BROKEN = 7
    FAILED = 8


_KINDS = {int(kind): kind for kind in Kind}


class Parcel(NamedTuple):
    """One cell's content. A tuple, as one is made for every cell."""

    kind: Kind
    content: bytes = b""


def encode(parcel: Parcel, size: int = SMALL) -> bytes:
    """The payload of a cell of `size` bytes; raises MalformedCell if the content does not fit."""
    length, room = len(parcel.content), CAPACITY[size]
    if length > room:
        raise MalformedCell(f"A parcel in a cell of {size} bytes holds {room}", length)
    return _HEAD.pack(parcel.kind, length) + parcel.content + bytes(room - length)


def decode(payload: bytes) -> Parcel:
    """The parcel in a payload; raises MalformedCell."""
    kind, length = _HEAD.unpack_from(payload)
    if kind not in _KINDS or length > len(payload) - _HEAD.size:
        raise MalformedCell("A parcel has an unknown kind or an impossible length", (kind, length))
    return Parcel(_KINDS[kind], payload[_HEAD.size : _HEAD.size + length])
