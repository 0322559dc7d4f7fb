"""Messages cut into parcels, put together again in bounded memory, and how many cells may be under way.

    DATA = message 4 | flags 1 | [total 4 [destination 32]] | fragment

The first fragment says how long the message is and, towards the proxy, who shall get it. Fragments of one message
come in order, since cells do; messages may be mixed. A destination is named by the SHA-256 of its TLS key, so that
no address travels, and a proxy can only reach what its directory names.

EXTEND    relay 32 | handshake 65                       to the last hop
EXTENDED  handshake 64                                  from it
DATA      message 4 | flags 1 | [total 4 [destination 32]] | fragment
CREDIT    cells 2
PING      number 4                                      answered by PONG with the same number
BROKEN    reason 1                                      from the hop behind which the circuit ended
FAILED    message 4 | reason 1                          a message that the proxy could not deliver
PADDING   nothing

A sender may be WINDOW cells ahead of the credits it got. So an honest circuit never has more than WINDOW cells queued
at a relay, and a relay may close one that has.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from troth.overlay.cells.format import HEADER, LARGE, SMALL, STACK, TAG
from troth.transport.errors import MalformedCell, QuotaExceeded

_PARCEL_HEAD = struct.Struct(">BH")
BODY_OVERHEAD = HEADER + STACK + TAG
CAPACITY = {size: size - BODY_OVERHEAD - _PARCEL_HEAD.size for size in (SMALL, LARGE)}
"""Bytes of content in a parcel, by cell size: 932 and 4,004."""
_HEAD = struct.Struct(">IB")
_TOTAL = struct.Struct(">I")
DESTINATION = 32
FIRST, LAST, FINAL = 1, 2, 4
"""Flags: first and last fragment of a message; no further answer to this message will come."""
_ALL_FLAGS = FIRST | LAST | FINAL
_SMALL_ROOM = CAPACITY[SMALL] - _HEAD.size
WINDOW = 256
"""Cells ahead of the credits: 1 MiB in large cells."""
CREDIT_CELLS = 64
"""Cells per CREDIT: one cell back for 64."""
_COUNT = struct.Struct(">H")


class ParcelKind(IntEnum):
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


_KINDS = {int(kind): kind for kind in ParcelKind}


class Parcel(NamedTuple):
    """One cell's content. A tuple, as one is made for every cell."""

    kind: ParcelKind
    content: bytes = b""


def encode(parcel: Parcel, size: int = SMALL) -> bytes:
    """The payload of a cell of `size` bytes; raises MalformedCell if the content does not fit."""
    length, room = len(parcel.content), CAPACITY[size]
    if length > room:
        raise MalformedCell(f"A parcel in a cell of {size} bytes holds {room}", length)
    return _PARCEL_HEAD.pack(parcel.kind, length) + parcel.content + bytes(room - length)


def decode(payload: bytes) -> Parcel:
    """The parcel in a payload; raises MalformedCell."""
    kind, length = _PARCEL_HEAD.unpack_from(payload)
    if kind not in _KINDS or length > len(payload) - _PARCEL_HEAD.size:
        raise MalformedCell("A parcel has an unknown kind or an impossible length", (kind, length))
    return Parcel(_KINDS[kind], payload[_PARCEL_HEAD.size : _PARCEL_HEAD.size + length])


@dataclass(frozen=True, slots=True)
class CellMessage:
    """A whole message. `number` is the client's own count; answers carry the number of what they answer."""

    number: int
    content: bytes
    destination: bytes = b""
    final: bool = False


def fragments(message: CellMessage) -> Iterator[tuple[int, bytes]]:
    """(cell size, content of a DATA parcel) for each cell of a message, in order.

    What fits one small cell gets one. Else large cells are filled, and a rest that fits three small ones goes there:
    fewer bytes than another large cell, which a clove of a long prompt notices and a short message does not.
    """
    content, offset = message.content, 0
    prefix = _TOTAL.pack(len(content)) + message.destination
    flags = FIRST
    while True:
        left = len(content) - offset + len(prefix)
        size = SMALL if left <= (1 if prefix else 3) * _SMALL_ROOM else LARGE
        room = CAPACITY[size] - _HEAD.size - len(prefix)
        end = offset + room
        if end >= len(content):
            flags |= LAST | (FINAL if message.final else 0)
        yield size, _HEAD.pack(message.number, flags) + prefix + content[offset:end]
        if flags & LAST:
            return
        offset, prefix, flags = end, b"", 0


@dataclass(slots=True)
class _Partial:
    total: int
    destination: bytes
    content: bytearray
    since: float


class Reassembly:
    """Puts the messages of one circuit's direction together.

    Args:
        named: whether a first fragment names a destination (towards the proxy).
        largest: bytes of a message; what says more is refused at its first fragment.
        open_messages: messages under way at once.
    """

    def __init__(self, *, named: bool, largest: int, open_messages: int) -> None:
        self._destination = DESTINATION if named else 0
        self._largest = largest
        self._open_messages = open_messages
        self._partial: OrderedDict[int, _Partial] = OrderedDict()
        self.held = 0

    def oldest(self) -> float:
        """When the oldest incomplete message began; infinity if there is none."""
        return min((partial.since for partial in self._partial.values()), default=math.inf)

    def add(self, content: bytes, now: float) -> CellMessage | None:
        """The message that this DATA parcel completes, if it does.

        Raises MalformedCell or QuotaExceeded: end the circuit, for the other end does not keep to the format.
        """
        if len(content) < _HEAD.size:
            raise MalformedCell("A DATA parcel is too short", len(content))
        number, flags = _HEAD.unpack_from(content)
        if flags & ~_ALL_FLAGS:
            raise MalformedCell("A DATA parcel has unknown flags", flags)
        if flags & FIRST:
            partial, fragment = self._begin(number, content, now)
        else:
            partial, fragment = self._known(number), content[_HEAD.size :]
        partial.content += fragment
        self.held += len(fragment)
        held, total = len(partial.content), partial.total
        if held > total or bool(flags & LAST) != (held == total) or (total and not fragment):
            raise MalformedCell("Fragments do not add up to the announced length", (held, total))
        return self._finished(number, flags) if flags & LAST else None

    def _begin(self, number: int, content: bytes, now: float) -> tuple[_Partial, bytes]:
        start = _HEAD.size + _TOTAL.size + self._destination
        if len(content) < start or number in self._partial:
            raise MalformedCell("A first fragment is too short, or comes twice", number)
        total = _TOTAL.unpack_from(content, _HEAD.size)[0]
        if total > self._largest:
            raise QuotaExceeded(f"A message has at most {self._largest} bytes", total, "Send it in parts.")
        if len(self._partial) >= self._open_messages:
            raise QuotaExceeded("Too many messages are under way", len(self._partial), "Finish one first.")
        destination = content[_HEAD.size + _TOTAL.size : start]
        partial = self._partial[number] = _Partial(total, destination, bytearray(), now)
        return partial, content[start:]

    def _known(self, number: int) -> _Partial:
        partial = self._partial.get(number)
        if partial is None:
            raise MalformedCell("A fragment of a message that never began", number)
        return partial

    def _finished(self, number: int, flags: int) -> CellMessage:
        partial = self._partial.pop(number)
        self.held -= len(partial.content)
        return CellMessage(number, bytes(partial.content), partial.destination, bool(flags & FINAL))


class SendWindow:
    """What this end may still send."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WINDOW

    def take(self) -> None:
        """One cell is sent; the caller looked at `left` before."""
        assert self.left > 0
        self.left -= 1

    def credited(self, content: bytes) -> None:
        """A CREDIT came; raises MalformedCell if it grants what was never sent."""
        count = _COUNT.unpack(content)[0] if len(content) == _COUNT.size else 0
        if not count or self.left + count > WINDOW:
            raise MalformedCell("A credit for cells that were never sent", count)
        self.left += count


class ReceiveWindow:
    """What the other end may still send."""

    __slots__ = ("_granted", "_uncredited")

    def __init__(self) -> None:
        self._granted = WINDOW
        self._uncredited = 0

    def received(self) -> bytes | None:
        """One cell came: the content of the CREDIT that is now due, or None. Raises QuotaExceeded."""
        if not self._granted:
            raise QuotaExceeded("More cells than were granted", WINDOW)
        self._granted -= 1
        self._uncredited += 1
        if self._uncredited < CREDIT_CELLS:
            return None
        self._granted += self._uncredited
        self._uncredited = 0
        return _COUNT.pack(CREDIT_CELLS)
