"""One SQLite file for everything that a scheduler may not forget, with group commits.

Durability: WAL with synchronous=FULL, so what was committed survives the loss of power. Whoever commits waits for the
disk; all who wait at once share one transaction and its flush, so that hundreds of orders a second need no more.
Deleted text is overwritten (secure_delete): prompts are gone once they are not owed any more.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from troth.chain.formats import SIGNED, OtherFormat, all_or_nothing, claim_format, private
from troth.scheduler.errors import ConfigurationInvalid, SchedulerError

Statement = tuple[str, tuple[Any, ...]]
_Waiting = tuple[Sequence[Statement], "asyncio.Future[None]"]

FORMAT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS beginning (block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS behind (block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS client_tab (tab BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS client_number (
  tab BLOB NOT NULL, number INTEGER NOT NULL, worth TEXT NOT NULL, order_id BLOB NOT NULL, block INTEGER NOT NULL,
  PRIMARY KEY (tab, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node_tab (tab BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS node_number (
  tab BLOB NOT NULL, number INTEGER NOT NULL, bound TEXT NOT NULL, order_id BLOB NOT NULL, segment INTEGER NOT NULL,
  work INTEGER NOT NULL, fee TEXT, due INTEGER, PRIMARY KEY (tab, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS steps (
  order_id BLOB NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, part TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (order_id, kind, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orders (
  order_id BLOB PRIMARY KEY, tab BLOB NOT NULL, number INTEGER NOT NULL, block INTEGER NOT NULL,
  kept INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS kept_orders ON orders (kept, block) WHERE kept > 0;
CREATE TABLE IF NOT EXISTS private (
  order_id BLOB NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (order_id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (claim BLOB PRIMARY KEY, tab BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS log_line (
  order_id BLOB PRIMARY KEY, entry INTEGER NOT NULL, fee TEXT NOT NULL, positions INTEGER NOT NULL, line BLOB);
CREATE INDEX IF NOT EXISTS log_lines ON log_line (entry);
CREATE TABLE IF NOT EXISTS log_entry (
  number INTEGER PRIMARY KEY, opened REAL NOT NULL, closed INTEGER NOT NULL DEFAULT 0, posted INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS tunnel_port (port INTEGER PRIMARY KEY, operator TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS transactions (
  purpose TEXT PRIMARY KEY, block INTEGER NOT NULL, at REAL NOT NULL, outcome TEXT);
"""


class StorageFailed(SchedulerError):
    """The disk did not take a step: nothing that follows from it may be signed or sent."""

    code = "storage_failed"


class SchedulerDatabase:
    """Reads at once, commits in groups. Use it from one event loop; writing happens in a thread.

    Reads have a connection of their own, so that none waits for the flush of what others write: each sees all that was
    committed, and nothing of what is being written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._connection = sqlite3.connect(private(path), check_same_thread=False, isolation_level=None)
        try:
            claim_format(self._connection, FORMAT, SIGNED)
        except OtherFormat as error:
            self._connection.close()
            raise ConfigurationInvalid("The scheduler's records cannot be used", path, str(error)) from error
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_SCHEMA)
        self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._reader.execute("PRAGMA query_only=ON")
        self._waiting: list[_Waiting] = []
        self._flushing: asyncio.Task[None] | None = None
        self.failure: str | None = None

    async def commit(self, *statements: Statement) -> None:
        """All statements or none; on stable storage when this returns. Raises StorageFailed.

        A caller that is cancelled meanwhile does not take them back.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((statements, done))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await done

    def read(self, query: str, *values: Any) -> list[Any]:
        """Rows of a query."""
        with self._reading:
            return self._reader.execute(query, values).fetchall()

    async def beginning(self, block: int) -> int:
        """The block at which these records began: ``block`` where nothing is in them, 0 where that was not noted."""
        begun = 0 if self.read("SELECT 1 FROM client_tab LIMIT 1") else block
        await self.commit(("INSERT INTO beginning SELECT ? WHERE NOT EXISTS (SELECT 1 FROM beginning)", (begun,)))
        return int(self.read("SELECT block FROM beginning")[0][0])

    def behind(self) -> int:
        """The last block at which a node told of words that these records did not hold; -1: none ever did."""
        return int(self.read("SELECT COALESCE(MAX(block), -1) FROM behind")[0][0])

    def truncate(self) -> None:
        """Move the write-ahead log into the file, so that deleted text is not found there either."""
        with self._lock, self._reading:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        """Wait for what is being written, and close the file."""
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        with self._lock, self._reading:
            self._reader.close()
            self._connection.close()

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes = await asyncio.to_thread(self._write, [statements for statements, _ in batch])
            except Exception as error:  # noqa: BLE001 -- nobody may wait for ever for what was not written
                outcomes = [error] * len(batch)
            for (_, done), refused in zip(batch, outcomes, strict=True):
                if done.done():
                    continue
                if refused is None:
                    done.set_result(None)
                else:
                    done.set_exception(StorageFailed("A step could not be stored", refused, "Look at the disk."))

    def _write(self, batch: Sequence[Sequence[Statement]]) -> list[Exception | None]:
        """One transaction for all; who breaks a rule of the schema is taken out alone."""
        with self._lock:
            try:
                with all_or_nothing(self._connection):
                    outcomes = [self._one(statements) for statements in batch]
            except sqlite3.Error as error:
                self.failure = str(error)
                return [error] * len(batch)
        self.failure = None
        return outcomes

    def _one(self, statements: Sequence[Statement]) -> Exception | None:
        self._connection.execute("SAVEPOINT one")
        try:
            for query, values in statements:
                self._connection.execute(query, values)
        except (sqlite3.IntegrityError, OverflowError) as error:
            # A number that SQLite cannot hold is its sender's own fault, too.
            self._connection.execute("ROLLBACK TO one")
            return error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE one")
        return None
