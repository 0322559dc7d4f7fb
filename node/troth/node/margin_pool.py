"""What this verifier has seen of each inferencer's margins, on disk: a line for every text that it judged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from troth.chain.formats import claim_format
from troth.node.errors import NodeStorageError
from troth.protocol.pooling import MarginSums, newest
from troth.protocol.types import Address, Hash32

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS margins (
    inferencer TEXT NOT NULL, class BLOB NOT NULL, task BLOB NOT NULL, number INTEGER NOT NULL,
    tokens INTEGER NOT NULL, claimed REAL NOT NULL, own REAL NOT NULL, PRIMARY KEY (inferencer, class, task)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_number ON margins (inferencer, class, number);
"""
LINES = 4_096
"""Lines kept of one inferencer in one class: more than a pool looks back."""


class MarginPool:
    """An SQLite file in WAL mode. Used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            claim_format(self._database, FORMAT)
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA)
        except sqlite3.Error as error:
            raise NodeStorageError("the pool of margins cannot be opened", str(path), str(error)) from error

    def add(self, inferencer: Address, execution_class: Hash32, task: Hash32, text: MarginSums) -> MarginSums:
        """The pool with one more text; a task that was counted before counts once.

        Raises:
            NodeStorageError: the line could not be written.
        """
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._insert(inferencer, execution_class, task, text)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise NodeStorageError(
                "the pool of margins cannot be written", str(error), "Free the disk; restart."
            ) from error
        return self.of(inferencer, execution_class)

    def of(self, inferencer: Address, execution_class: Hash32) -> MarginSums:
        """The newest texts of an inferencer, as far back as a pool looks."""
        lines = self._database.execute(
            "SELECT tokens, claimed, own FROM margins WHERE inferencer=? AND class=? ORDER BY number DESC",
            (inferencer, execution_class),
        )
        return newest(MarginSums(*line) for line in lines)

    def _insert(self, inferencer: Address, execution_class: Hash32, task: Hash32, text: MarginSums) -> None:
        place = (inferencer, execution_class)
        (last,) = self._database.execute(
            "SELECT COALESCE(MAX(number), 0) FROM margins WHERE inferencer=? AND class=?", place
        ).fetchone()
        self._database.execute(
            "INSERT OR IGNORE INTO margins VALUES (?,?,?,?,?,?,?)",
            (*place, task, last + 1, text.tokens, text.claimed, text.own),
        )
        self._database.execute(
            "DELETE FROM margins WHERE inferencer=? AND class=? AND number<=?", (*place, last + 1 - LINES)
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()
