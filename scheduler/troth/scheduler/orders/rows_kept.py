"""Rows of running and answered orders on disk, with the nodes' signatures: a check and the court may ask for them.

One append-only file of raw rows and one of links per segment. A write reaches the operating system before the next
token; ``sync`` puts all on stable storage once, when the answer is complete. What was cut off before is failed anyway.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from troth.protocol.types import Hash32
from troth.protocol.wire_fields import RowSignature

_LINK = struct.Struct(">I32s32s65s")


@dataclass(frozen=True, slots=True)
class KeptRows:
    """All rows under one folder."""

    folder: Path

    def open(self, order: bytes, row_bytes: int) -> OrderRows:
        """The rows of one order, each of ``row_bytes`` bytes."""
        return OrderRows(self.folder / order.hex(), row_bytes)

    def orders(self) -> list[Hash32]:
        """Orders of which rows are kept."""
        if not self.folder.exists():
            return []
        return [Hash32(bytes.fromhex(entry.name)) for entry in self.folder.iterdir()]

    def forget(self, order: bytes) -> None:
        """Remove an order's rows; nothing happens if there are none."""
        shutil.rmtree(self.folder / order.hex(), ignore_errors=True)


class OrderRows:
    """The rows of one order."""

    def __init__(self, folder: Path, row_bytes: int) -> None:
        self._folder = folder
        self.row_bytes = row_bytes
        self._files: dict[str, int] = {}

    def append(self, segment: int, rows: bytes | memoryview, row: RowSignature) -> None:
        """Add the rows of one message, then their link: a link without all its rows is never on disk."""
        _write(self._file("rows", segment), rows)
        _write(self._file("links", segment), _LINK.pack(row.position, row.row_hash, row.previous, row.signature))

    def rows(self, segment: int, start: int, count: int) -> bytes:
        """Rows ``start`` to ``start + count - 1``; EOFError where they are not there."""
        wanted = count * self.row_bytes
        with self._path("rows", segment).open("rb") as file:
            file.seek(start * self.row_bytes)
            found = file.read(wanted)
        if len(found) != wanted:
            raise EOFError(f"segment {segment}: rows {start}+{count} are not on disk")
        return found

    def links(self, segment: int) -> dict[int, RowSignature]:
        """The signatures by the position of their rows, in order."""
        content = self._path("links", segment).read_bytes()
        return {parts[0]: RowSignature(*parts) for parts in _LINK.iter_unpack(content)}

    def last(self, segment: int, count: int) -> tuple[bytes, Hash32]:
        """The last of ``count`` rows and the link before it; EOFError or KeyError where they are not there."""
        return self.rows(segment, count - 1, 1), Hash32(self.links(segment)[count - 1].previous)

    def sync(self) -> None:
        """Put everything on stable storage."""
        for descriptor in self._files.values():
            os.fsync(descriptor)

    def close(self) -> None:
        """Close the files; reading still works."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _file(self, kind: str, segment: int) -> int:
        name = f"{kind}-{segment}"
        descriptor = self._files.get(name)
        if descriptor is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path(kind, segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._files[name] = descriptor
        return descriptor

    def _path(self, kind: str, segment: int) -> Path:
        return self._folder / f"{kind}-{segment}"


def _write(descriptor: int, data: bytes | memoryview) -> None:
    """All of it, or OSError: the last bytes that a full disk has room for are no rows."""
    left = memoryview(data).cast("B")
    while left:
        left = left[os.write(descriptor, left) :]
