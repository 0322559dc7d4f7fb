"""Rows and their signatures on disk, as they stream.

One append-only file of raw rows and one of links per (segment, attempt). A write reaches the operating system before
the next token, so it survives the death of this process; `sync` makes it survive the loss of power and is called
once, when generation ends. A task cut off before that is aborted anyway.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from troth.protocol.wire_fields import RowSignature

_LINK = struct.Struct(">II32s32s65s65s")


@dataclass(frozen=True, slots=True)
class Link:
    """The end of one message of rows: their count, the inferencer's signature, the scheduler's over the same row."""

    count: int
    row: RowSignature
    countersignature: bytes


class TraceStore:
    """All traces under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(self, task: bytes, row_bytes: int) -> TaskTraces:
        """The traces of one task; rows have `row_bytes` bytes."""
        return TaskTraces(self._folder / task.hex(), row_bytes)

    def older_than(self, moment: float) -> list[bytes]:
        """Tasks whose folder was last changed before a Unix time."""
        return [bytes.fromhex(entry.name) for entry in self._folder.iterdir() if entry.stat().st_mtime < moment]

    def forget(self, task: bytes) -> None:
        """Remove a task's rows; nothing happens if there are none."""
        shutil.rmtree(self._folder / task.hex(), ignore_errors=True)


class TaskTraces:
    """The traces of one task."""

    def __init__(self, folder: Path, row_bytes: int) -> None:
        self._folder = folder
        self.row_bytes = row_bytes
        self._files: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def append(self, segment: int, attempt: int, rows: bytes | memoryview, link: Link) -> None:
        """Add the rows of one message, and then its link: a link without all its rows cannot be found on disk."""
        os.write(self._file("rows", segment, attempt), rows)
        packed = _LINK.pack(
            link.row.position,
            link.count,
            link.row.row_hash,
            link.row.previous,
            link.row.signature,
            link.countersignature,
        )
        os.write(self._file("links", segment, attempt), packed)

    def rows(self, segment: int, attempt: int, start: int, count: int) -> bytes:
        """Rows `start` to `start + count - 1`."""
        wanted = count * self.row_bytes
        with self._path("rows", segment, attempt).open("rb") as file:
            file.seek(start * self.row_bytes)
            found = file.read(wanted)
        if len(found) != wanted:
            raise EOFError(f"segment {segment}, attempt {attempt}: rows {start}+{count} are not on disk")
        return found

    def links(self, segment: int, attempt: int) -> Iterator[Link]:
        """Every link, in order."""
        content = self._path("links", segment, attempt).read_bytes()
        for position, count, row_hash, previous, signature, countersignature in _LINK.iter_unpack(content):
            yield Link(count, RowSignature(position, row_hash, previous, signature), countersignature)

    def last_link(self, segment: int, attempt: int) -> Link:
        """The end of the chain."""
        *_, last = self.links(segment, attempt)
        return last

    def sync(self) -> None:
        """Put everything on stable storage."""
        for descriptor in self._files.values():
            os.fsync(descriptor)

    def close(self) -> None:
        """Close the files; reading still works."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _file(self, kind: str, segment: int, attempt: int) -> int:
        path = self._path(kind, segment, attempt)
        descriptor = self._files.get(path.name)
        if descriptor is None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._files[path.name] = descriptor
        return descriptor

    def _path(self, kind: str, segment: int, attempt: int) -> Path:
        return self._folder / f"{kind}-{segment}-{attempt}"
