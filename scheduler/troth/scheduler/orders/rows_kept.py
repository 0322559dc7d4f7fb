"""Rows of running and answered orders, with the nodes' signatures: a check and the court may ask for them.

Only those of answered orders are read: what was cut off before is failed anyway. Where hashes travel, they are kept in
their place. A short answer's rows wait in memory, and are journalled with the answer, in its transaction. Longer ones
are in files, an append-only one of raw rows and one of links per segment, which ``sync`` puts on stable storage once,
before the answer is journalled.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from troth.protocol.types import Hash32
from troth.protocol.wire_fields import RowSignature
from troth.scheduler.tabs.database import SchedulerDatabase, Statement

_LINK = struct.Struct(">I32s32s65s")
HELD_BYTES = 64 * 1024
"""Rows of one order that wait in memory for its answer. So many are cheaper in the journal's own transaction than in
files that are made, flushed and closed one by one; more would hold up what shares the transaction."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """All rows: those of short answers in the database, beside what else is private, the others under one folder."""

    folder: Path
    database: SchedulerDatabase

    def open(self, order: bytes, row_bytes: int) -> OrderRows:
        """The rows of one order, each of ``row_bytes`` bytes; those of a hash where hashes are kept."""
        return OrderRows(self, order, row_bytes)

    def forget(self, order: bytes) -> None:
        """Remove an order's files; nothing happens if there are none. The store forgets what is in the database."""
        shutil.rmtree(self.folder / order.hex(), ignore_errors=True)


class OrderRows:
    """The rows of one order."""

    def __init__(self, kept: KeptRows, order: bytes, row_bytes: int) -> None:
        self._database = kept.database
        self._folder = kept.folder / order.hex()
        self._order = order
        self.row_bytes = row_bytes
        self._held: dict[str, bytearray] = {}
        self._size = 0
        self._files: dict[str, int] = {}

    def append(self, segment: int, rows: bytes | memoryview, row: RowSignature) -> None:
        """Add the rows of one message, then their link: a link without all its rows is never on disk."""
        self._add(_name("rows", segment), rows)
        self._add(_name("links", segment), _LINK.pack(row.position, row.row_hash, row.previous, row.signature))

    def rows(self, segment: int, start: int, count: int) -> bytes:
        """Rows ``start`` to ``start + count - 1``; EOFError where they are not there."""
        name, first, wanted = _name("rows", segment), start * self.row_bytes, count * self.row_bytes
        journalled = self._journalled(name)
        if journalled is None:
            with (self._folder / name).open("rb") as file:
                file.seek(first)
                found = file.read(wanted)
        else:
            found = journalled[first : first + wanted]
        if len(found) != wanted:
            raise EOFError(f"segment {segment}: rows {start}+{count} are not on disk")
        return found

    def links(self, segment: int) -> dict[int, RowSignature]:
        """The signatures by the position of their rows, in order."""
        name = _name("links", segment)
        journalled = self._journalled(name)
        content = (self._folder / name).read_bytes() if journalled is None else journalled
        return {parts[0]: RowSignature(*parts) for parts in _LINK.iter_unpack(content)}

    def append_last(self, segment: int, row: bytes) -> None:
        """Add the last row itself, where only hashes of rows are kept; its client sees whether it is the one."""
        self._add(_name("last", segment), row)

    def append_imprints(self, segment: int, word: bytes) -> None:
        """Add what a node signed of its rows' imprints."""
        self._add(_name("imprints", segment), word)

    def imprints(self, segment: int) -> bytes:
        """What a node signed of its rows' imprints; empty where it signed none."""
        name = _name("imprints", segment)
        journalled = self._journalled(name)
        if journalled is not None:
            return journalled
        path = self._folder / name
        return path.read_bytes() if path.is_file() else b""

    def last(self, segment: int, count: int, row_bytes: int) -> tuple[bytes, Hash32]:
        """The last of ``count`` rows, of so many bytes, and the link before it; EOFError, OSError or KeyError where
        they are not there."""
        if self.row_bytes == row_bytes:
            row = self.rows(segment, count - 1, 1)
        else:
            name = _name("last", segment)
            journalled = self._journalled(name)
            row = (self._folder / name).read_bytes() if journalled is None else journalled
        return row, Hash32(self.links(segment)[count - 1].previous)

    def statements(self) -> list[Statement]:
        """What stores the rows that are held, to be committed with the answer."""
        query = "INSERT OR REPLACE INTO private VALUES (?, ?, ?)"
        return [(query, (self._order, name, bytes(data))) for name, data in self._held.items()]

    @property
    def in_files(self) -> bool:
        """Whether there is anything to ``sync``."""
        return bool(self._files)

    def sync(self) -> None:
        """Put the files on stable storage."""
        for descriptor in self._files.values():
            os.fsync(descriptor)

    def close(self) -> None:
        """Close the files, hold nothing; what is on disk can still be read."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        self._held.clear()

    def _journalled(self, name: str) -> bytes | None:
        query = "SELECT data FROM private WHERE order_id = ? AND name = ?"
        found = self._database.read(query, self._order, name)
        return bytes(found[0][0]) if found else None

    def _add(self, name: str, data: bytes | memoryview) -> None:
        self._size += memoryview(data).nbytes
        if self._size <= HELD_BYTES:
            self._held.setdefault(name, bytearray()).extend(data)
            return
        for earlier, held in self._held.items():
            _write(self._file(earlier), held)
        self._held.clear()
        _write(self._file(name), data)

    def _file(self, name: str) -> int:
        descriptor = self._files.get(name)
        if descriptor is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._files[name] = descriptor
        return descriptor


def _name(kind: str, segment: int) -> str:
    return f"{kind}-{segment}"


def _write(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """All of it, or OSError: the last bytes that a full disk has room for are no rows."""
    left = memoryview(data).cast("B")
    while left:
        left = left[os.write(descriptor, left) :]
