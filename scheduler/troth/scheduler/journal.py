"""The journal: every step of every task, appended to one SQLite file before the next step is taken.

Durability: WAL with synchronous=FULL, so a step that was recorded survives the loss of power, at one fsync a step
(about a dozen per task, none of them between two tokens).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path

import msgspec

from troth.scheduler.records import FINAL, Record, Reopened, step_name

_SCHEMA = """
CREATE TABLE IF NOT EXISTS steps (
  task BLOB NOT NULL, number INTEGER NOT NULL, step TEXT NOT NULL, at REAL NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (task, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (task BLOB PRIMARY KEY, received REAL NOT NULL, final INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS unfinished ON tasks (final) WHERE final = 0;
CREATE TABLE IF NOT EXISTS timings (task BLOB PRIMARY KEY, breakdown BLOB NOT NULL);
"""
_VERSION = 1
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class Journal:
    """Append-only steps of tasks. Safe to use from several threads; `record` does not block the event loop."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        path.chmod(0o600)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version={_VERSION}")

    async def record(self, task: bytes, record: Record) -> None:
        """Append one step; when this returns the step is on stable storage."""
        await asyncio.to_thread(self.append, task, record)

    def append(self, task: bytes, record: Record) -> None:
        """What `record` does, in the calling thread."""
        now, encoded = time.time(), msgspec.json.encode(record)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT OR IGNORE INTO tasks (task, received) VALUES (?, ?)", (task, now))
            self._connection.execute(
                "INSERT INTO steps SELECT ?, COUNT(*), ?, ?, ? FROM steps WHERE task = ?",
                (task, step_name(record), now, encoded, task),
            )
            if isinstance(record, (*FINAL, Reopened)):
                final = isinstance(record, FINAL)
                self._connection.execute("UPDATE tasks SET final = ? WHERE task = ?", (final, task))

    def history(self, task: bytes) -> list[Record]:
        """The steps of a task, oldest first; empty for an unknown task."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT record FROM steps WHERE task = ? ORDER BY number", (task,)
            ).fetchall()
        return [_DECODER.decode(row[0]) for row in rows]

    def times(self, task: bytes) -> dict[str, float]:
        """Unix time of each step; of the latest where a step came more than once."""
        with self._lock:
            rows = self._connection.execute("SELECT step, at FROM steps WHERE task = ? ORDER BY number", (task,))
            return dict(rows.fetchall())

    def known(self, task: bytes) -> bool:
        """Whether the task was ever received."""
        with self._lock:
            return self._connection.execute("SELECT 1 FROM tasks WHERE task = ?", (task,)).fetchone() is not None

    def unfinished(self) -> list[bytes]:
        """Tasks whose last step is no final one, oldest first."""
        with self._lock:
            rows = self._connection.execute("SELECT task FROM tasks WHERE final = 0 ORDER BY received").fetchall()
        return [bytes(row[0]) for row in rows]

    def ended_since(self, moment: float) -> list[bytes]:
        """Tasks that came to an end on chain after a Unix time, as far as this journal knows."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT DISTINCT task FROM steps JOIN tasks USING (task)"
                " WHERE final = 1 AND at > ? AND step IN ('settled', 'aborted')",
                (moment,),
            )
            return [bytes(row[0]) for row in rows.fetchall()]

    def finished_before(self, moment: float) -> list[bytes]:
        """Finished tasks that were received before a Unix time."""
        with self._lock:
            rows = self._connection.execute("SELECT task FROM tasks WHERE final = 1 AND received < ?", (moment,))
            return [bytes(row[0]) for row in rows.fetchall()]

    def keep_timings(self, task: bytes, breakdown: dict[str, float]) -> None:
        """Remember where a task's time went, for its receipt."""
        with self._lock, self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO timings VALUES (?, ?)", (task, msgspec.json.encode(breakdown))
            )

    def timings(self, task: bytes) -> dict[str, float]:
        """What `keep_timings` kept; empty if nothing."""
        with self._lock:
            row = self._connection.execute("SELECT breakdown FROM timings WHERE task = ?", (task,)).fetchone()
        return {} if row is None else msgspec.json.decode(row[0], type=dict[str, float])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
