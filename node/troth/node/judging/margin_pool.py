"""What this verifier has seen of each inferencer, on disk.

Under the first rules a line for every text that it judged, with its margins; under the second ones the evidence that
findings over all tasks come to, and the newest tasks, so that each counts once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from troth.chain.formats import SMALL_CACHE, all_or_nothing, claim_format, private
from troth.node.errors import NodeStorageError
from troth.protocol.findings import Kind, TaskFinding
from troth.protocol.pooling import EMPTY, MarginSums, newest
from troth.protocol.sequential import NOTHING, NodeEvidence
from troth.protocol.types import Address, Hash32

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS margins (
    inferencer TEXT NOT NULL, class BLOB NOT NULL, task BLOB NOT NULL, number INTEGER NOT NULL,
    tokens INTEGER NOT NULL, claimed REAL NOT NULL, own REAL NOT NULL, PRIMARY KEY (inferencer, class, task)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_number ON margins (inferencer, class, number);
CREATE TABLE IF NOT EXISTS evidence (
    inferencer TEXT NOT NULL, class BLOB NOT NULL, test TEXT NOT NULL, tasks INTEGER NOT NULL, capital TEXT NOT NULL,
    PRIMARY KEY (inferencer, class, test)
) WITHOUT ROWID;
"""
LINES = 4_096
"""Lines kept of one inferencer in one class: more than a pool looks back."""


class MarginPool:
    """An SQLite file in WAL mode. Used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(private(path), isolation_level=None, check_same_thread=False)
            claim_format(self._database, FORMAT)
            self._database.executescript(SMALL_CACHE + "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA)
        except sqlite3.Error as error:
            raise NodeStorageError("the pool of margins cannot be opened", str(path), str(error)) from error

    def add(self, inferencer: Address, execution_class: Hash32, task: Hash32, text: MarginSums) -> MarginSums:
        """The pool with one more text; a task that was counted before counts once.

        Raises:
            NodeStorageError: the line could not be written.
        """
        with self._written():
            self._insert(inferencer, execution_class, task, text)
        return self.of(inferencer, execution_class)

    def gather(
        self, inferencer: Address, execution_class: Hash32, task: Hash32, findings: Sequence[TaskFinding]
    ) -> tuple[NodeEvidence, ...]:
        """The evidence of every test, with one more task's findings; a task that was counted before counts once.

        Raises:
            NodeStorageError: it could not be written.
        """
        with self._written():
            if self._insert(inferencer, execution_class, task, EMPTY):
                for finding in findings:
                    evidence = self.evidence(inferencer, execution_class, finding.test)
                    evidence = evidence.after(finding.value, finding.honest)
                    self._database.execute(
                        "INSERT OR REPLACE INTO evidence VALUES (?,?,?,?,?)",
                        (inferencer, execution_class, finding.test, evidence.tasks, json.dumps(evidence.capital)),
                    )
        return tuple(self.evidence(inferencer, execution_class, test) for test in Kind)

    def evidence(self, inferencer: Address, execution_class: Hash32, test: Kind) -> NodeEvidence:
        """What all tasks come to in one test."""
        line = self._database.execute(
            "SELECT tasks, capital FROM evidence WHERE inferencer=? AND class=? AND test=?",
            (inferencer, execution_class, test),
        ).fetchone()
        return NOTHING if line is None else NodeEvidence(line[0], tuple(json.loads(line[1])))

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            with all_or_nothing(self._database):
                yield
        except sqlite3.Error as error:
            raise NodeStorageError(
                "the pool of margins cannot be written", str(error), "Make room on the disk; no restart is needed."
            ) from error

    def of(self, inferencer: Address, execution_class: Hash32) -> MarginSums:
        """The newest texts of an inferencer, as far back as a pool looks."""
        lines = self._database.execute(
            "SELECT tokens, claimed, own FROM margins WHERE inferencer=? AND class=? ORDER BY number DESC",
            (inferencer, execution_class),
        )
        return newest(MarginSums(*line) for line in lines)

    def _insert(self, inferencer: Address, execution_class: Hash32, task: Hash32, text: MarginSums) -> bool:
        """Whether the task is a new one."""
        place = (inferencer, execution_class)
        (last,) = self._database.execute(
            "SELECT COALESCE(MAX(number), 0) FROM margins WHERE inferencer=? AND class=?", place
        ).fetchone()
        added = self._database.execute(
            "INSERT OR IGNORE INTO margins VALUES (?,?,?,?,?,?,?)",
            (*place, task, last + 1, text.tokens, text.claimed, text.own),
        ).rowcount
        self._database.execute(
            "DELETE FROM margins WHERE inferencer=? AND class=? AND number<=?", (*place, last + 1 - LINES)
        )
        return added == 1

    def close(self) -> None:
        """Close the file."""
        self._database.close()
