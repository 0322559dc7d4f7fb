"""What a cell looks like on a link (docs/reference/overlay.md, "Cells").

    size and command 1 | circuit id 8 | body to 1,024 or 4,096 bytes

The top bit of the first byte says which size. Circuit ids are random, belong to one link and say nothing else.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from troth.transport.errors import MalformedCell

SMALL, LARGE = 1024, 4096
"""Bytes of a cell: small for a token, large for a prompt."""
CIRCUIT_ID_BYTES = 8
HEADER = 1 + CIRCUIT_ID_BYTES
TAG = 16
MAX_HOPS = 4
"""Relays of the longest circuit: as many slots as the stack has."""
STACK = TAG * MAX_HOPS
_LARGE_BIT = 0x80


class Command(IntEnum):
    """What a cell is for on its link."""

    PADDING = 0
    CREATE = 1
    CREATED = 2
    ONION = 3
    DESTROY = 4


class EndReason(IntEnum):
    """Why a circuit ended; the first byte of a DESTROY cell's body and the content of BROKEN."""

    FINISHED = 0
    PROTOCOL = 1
    TAMPERED = 2
    UNKNOWN_RELAY = 3
    UNREACHABLE = 4
    BUSY = 5
    EVICTED = 6
    QUOTA = 7
    IDLE = 8
    DRAINING = 9
    HANDSHAKE = 10
    DESTROYED = 11


_COMMANDS = frozenset(int(command) for command in Command)
_REASONS = frozenset(int(reason) for reason in EndReason)


class Cell(NamedTuple):
    """A cell taken off a link: its body is believed only where a layer's tag says so."""

    command: Command
    circuit_id: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes on the link."""
        return HEADER + len(self.body)


def new_circuit_id() -> bytes:
    """Eight random bytes, never derived from anybody's identity."""
    return secrets.token_bytes(CIRCUIT_ID_BYTES)


def header(command: Command, circuit_id: bytes, size: int) -> bytes:
    """The nine bytes before a body."""
    return bytes((command | (_LARGE_BIT if size == LARGE else 0),)) + circuit_id


def onion_headers(circuit_id: bytes) -> dict[int, bytes]:
    """Headers of a circuit's ONION cells by cell size, made once for all of its cells."""
    return {size: header(Command.ONION, circuit_id, size) for size in (SMALL, LARGE)}


def control_cell(command: Command, circuit_id: bytes, content: bytes) -> bytes:
    """A small cell of a link's own: content, then random bytes, so that no two links carry equal ones."""
    return header(command, circuit_id, SMALL) + content + os.urandom(SMALL - HEADER - len(content))


def destroy_cell(circuit_id: bytes, reason: EndReason) -> bytes:
    """The cell that ends a circuit on one link."""
    return control_cell(Command.DESTROY, circuit_id, bytes((reason,)))


def reason_of(value: int) -> EndReason:
    """The reason behind a byte; a stranger's unknown one counts as PROTOCOL."""
    return EndReason(value) if value in _REASONS else EndReason.PROTOCOL


class CellReader:
    """Cuts a link's byte stream into cells; holds less than one cell between calls."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def held(self) -> int:
        """Bytes of an unfinished cell."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[Cell]:
        """The cells completed by `data`; raises MalformedCell at the first that cannot be one."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        offset, end = 0, len(data)
        while offset < end:
            first = data[offset]
            if first & ~_LARGE_BIT not in _COMMANDS:
                raise MalformedCell("A cell has an unknown command", hex(first), "The peer speaks another version.")
            following = offset + (LARGE if first & _LARGE_BIT else SMALL)
            if following > end:
                self._rest = data[offset:]
                return
            start = offset + HEADER
            yield Cell(_BY_BYTE[first], data[offset + 1 : start], data[start:following])
            offset = following


_BY_BYTE = {int(command) | bit: command for command in Command for bit in (0, _LARGE_BIT)}
