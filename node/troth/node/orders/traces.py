"""Traces this node committed to, on disk, so that a node that was killed after it signed can still open.

A trace is raw little-endian rows. A short one is written with the index line that names it, in one transaction; a
longer one is a file, fsynced before that line. The index is SQLite in WAL mode. Of a trace whose rows anybody with the
class computes again, the line is all there is: root and salt open it. None is dropped before its order has ended: who
keeps too much takes no more orders.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.chain.formats import SIGNED, SMALL_CACHE, all_or_nothing, claim_format, private
from troth.node.errors import NodeStorageError
from troth.protocol.tensors import Dtype

FORMAT = 1
_PLACE = "order_id=? AND segment=? AND attempt=?"
SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, attempt INTEGER NOT NULL,
    positions INTEGER NOT NULL, columns INTEGER NOT NULL, dtype INTEGER NOT NULL,
    root BLOB NOT NULL, salt BLOB NOT NULL, created_at REAL NOT NULL,
    PRIMARY KEY (order_id, segment, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS short (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, attempt INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (order_id, segment, attempt)
);
"""
SHORT_BYTES = 64 * 1024
"""Up to which a trace is in the index: a file of its own would be flushed to the disk twice, and its folder once."""


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """What is needed to open a trace, or to commit to it, without the session that made it.

    Args:
        attempt: whether this node inferred or checks.
        columns: of the rows that are kept, 0 where none are.
        salt: of this node's commitment to the root.
    """

    order_id: bytes
    segment: int
    attempt: int
    positions: int
    columns: int
    dtype: int
    root: bytes
    salt: bytes
    created_at: float

    @property
    def place(self) -> tuple[object, int, int]:
        """What names it: order, segment and attempt."""
        return self.order_id, self.segment, self.attempt

    @property
    def keeps_rows(self) -> bool:
        """Whether there is more than the index line."""
        return self.columns > 0

    @property
    def bytes(self) -> int:
        """Size of the trace's rows."""
        return self.positions * self.columns * Dtype(self.dtype).element_bytes


class TraceStore:
    """Trace files and their index under one folder."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        # States tell of prompts: nobody else on this machine may read them.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder
        self._clock = clock
        try:
            file = private(folder / "index.sqlite")
            self._index = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            claim_format(self._index, FORMAT, SIGNED)
            self._index.executescript(SMALL_CACHE + "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA)
        except sqlite3.Error as error:
            raise NodeStorageError("the index of traces cannot be opened", str(folder), str(error)) from error
        # Counted once: whoever keeps ten thousand traces must not read them all with each new one.
        self._kept = sum(trace.bytes for trace in self.all())

    @property
    def kept(self) -> int:
        """Bytes of all traces on disk."""
        return self._kept

    def now(self) -> float:
        """The time that goes into `created_at`."""
        return self._clock()

    def keep(self, trace: StoredTrace, rows: NDArray[Any]) -> None:
        """Write the rows, if they are kept, and the index line; both are on stable storage when this returns."""
        known = self.find(trace.order_id, trace.segment, trace.attempt)
        data = b""
        if trace.keeps_rows:
            data = np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()
        try:
            if len(data) > SHORT_BYTES:
                self._write_file(self._path(trace), data)
            with all_or_nothing(self._index):
                if trace.keeps_rows and len(data) <= SHORT_BYTES:
                    self._index.execute("INSERT OR REPLACE INTO short VALUES (?, ?, ?, ?)", (*trace.place, data))
                self._write(trace)
        except (OSError, sqlite3.Error) as error:
            if known is None:
                self._path(trace).unlink(missing_ok=True)
            raise NodeStorageError(
                "the trace cannot be kept", str(error), "Make room on the disk; no restart is needed."
            ) from error
        self._kept += trace.bytes - (known.bytes if known is not None else 0)

    def find(self, order_id: bytes, segment: int, attempt: int) -> StoredTrace | None:
        """The trace of an order's segment."""
        found = list(self._select(_PLACE, (order_id, segment, attempt)))
        return found[0] if found else None

    def all(self) -> Iterator[StoredTrace]:
        """Every stored trace, oldest first."""
        return self._select("1", ())

    def rows(self, trace: StoredTrace) -> NDArray[Any]:
        """The trace itself: (positions, columns) in the storage type of its dtype.

        Raises:
            NodeStorageError: the rows are gone or have another size than the index says, or there never were any.
        """
        if not trace.keeps_rows:
            what = "of this trace only the root is kept"
            raise NodeStorageError(what, trace.order_id.hex(), "Compute its rows again from the order's text.")
        storage = np.dtype(Dtype(trace.dtype).storage)
        found = self._index.execute(f"SELECT data FROM short WHERE {_PLACE}", trace.place).fetchone()  # noqa: S608
        try:
            data = self._path(trace).read_bytes() if found is None else found[0]
        except OSError as error:
            raise NodeStorageError(
                "a trace file is gone", str(self._path(trace)), "Restore it from a backup."
            ) from error
        if len(data) != trace.bytes:
            raise NodeStorageError("a trace is damaged", str(self._path(trace)), "Restore it from a backup.")
        flat = np.frombuffer(data, dtype=storage.newbyteorder("<")).astype(storage, copy=False)
        return flat.reshape(trace.positions, trace.columns)

    def drop(self, trace: StoredTrace) -> None:
        """Forget a trace whose order has ended."""
        with all_or_nothing(self._index):
            gone = self._index.execute(f"DELETE FROM kept WHERE {_PLACE}", trace.place)  # noqa: S608
            self._index.execute(f"DELETE FROM short WHERE {_PLACE}", trace.place)  # noqa: S608
        self._kept -= trace.bytes * gone.rowcount
        self._path(trace).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _select(self, condition: str, values: tuple[Any, ...]) -> Iterator[StoredTrace]:
        columns = ", ".join(field.name for field in fields(StoredTrace))
        found = self._index.execute(f"SELECT {columns} FROM kept WHERE {condition} ORDER BY created_at", values)  # noqa: S608
        return (StoredTrace(*line) for line in found.fetchall())

    def _write(self, trace: StoredTrace) -> None:
        places = ",".join("?" * len(fields(StoredTrace)))
        self._index.execute(f"INSERT OR REPLACE INTO kept VALUES ({places})", astuple(trace))  # noqa: S608

    def _path(self, trace: StoredTrace) -> Path:
        return self._folder / f"{trace.order_id.hex()}-{trace.segment}-{trace.attempt}.trace"

    def _write_file(self, path: Path, data: bytes) -> None:
        staging = path.with_suffix(".part")
        try:
            with staging.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            staging.replace(path)
        except OSError:
            # A part that stays makes a full disk fuller, and nobody drops it.
            staging.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
