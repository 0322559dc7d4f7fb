"""The node's one file of records: what was signed, owed and claimed, in SQLite that waits for the disk.

Several stores share it, so that a signature and the leaf that it makes payable are written together or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from troth.chain.formats import SIGNED, SMALL_CACHE, all_or_nothing, claim_format, private
from troth.node.errors import NodeStorageError

FORMAT = 1
"""Of all tables that the node's stores make here."""


class NodeDatabase:
    """An SQLite file in WAL mode with synchronous=FULL. Used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self.rollbacks = 0
        """How often something was taken back: what was remembered of the records before may not be there."""
        try:
            self._connection = sqlite3.connect(private(path), isolation_level=None, check_same_thread=False)
            claim_format(self._connection, FORMAT, SIGNED)
            self._connection.executescript(SMALL_CACHE + "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        except sqlite3.Error as error:
            raise NodeStorageError("the node's records cannot be opened", str(path), str(error)) from error

    def create(self, schema: str) -> None:
        """Make a store's tables where they are missing."""
        try:
            self._connection.executescript(schema)
        except sqlite3.Error as error:
            raise NodeStorageError("the node's records cannot be opened", str(self._path), str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside, or nothing; on stable storage when it is left. One inside another joins it.

        Raises:
            NodeStorageError: the disk did not take it, so nothing may leave.
        """
        if self._connection.in_transaction:
            yield
            return
        try:
            with all_or_nothing(self._connection):
                yield
        except BaseException as error:
            # Counted whatever it was: a full disk has made SQLite take everything back by itself.
            self.rollbacks += 1
            if not isinstance(error, sqlite3.Error):
                raise
            raise NodeStorageError(
                "the node's records cannot be written", str(error), "Make room on the disk; no restart is needed."
            ) from error

    def write(self, statement: str, *values: Any) -> int:
        """Carry out a statement inside a transaction; how many rows it changed."""
        if not self._connection.in_transaction:
            raise AssertionError("records are written inside of a transaction")
        return self._connection.execute(statement, values).rowcount

    def rows(self, query: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """What a query finds; NodeStorageError where the file cannot be read."""
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise NodeStorageError(
                "the node's records cannot be read", str(error), "Check the disk; restart."
            ) from error

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first of them."""
        found = self.rows(query, *values)
        return found[0] if found else None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
