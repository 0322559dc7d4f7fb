"""One file for tabs and the orders on them, safe for several processes and for a loss of power between two steps.

SQLite with a write-ahead log and full synchronisation: what ``writing`` has left is on the disk. Blocks of ``writing``
take the file's lock before they read, so that two gateways never give a number out twice; they hold it for a signature
and never across an ``await``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from troth.chain.formats import SIGNED, OtherFormat, all_or_nothing, claim_format, private
from troth.client.tabs.errors import StoreUnusable

FORMAT = 1
BUSY_SECONDS = 30.0
"""How long a process waits for another one's block: each takes milliseconds."""

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS tabs (
        id TEXT PRIMARY KEY, chain_id TEXT NOT NULL, bank TEXT NOT NULL, factory TEXT NOT NULL,
        start_block INTEGER NOT NULL, rpc TEXT NOT NULL, payer TEXT NOT NULL, payee TEXT NOT NULL, key TEXT NOT NULL,
        created INTEGER NOT NULL, book TEXT NOT NULL, voucher TEXT, delivered TEXT NOT NULL DEFAULT '',
        doubt TEXT NOT NULL DEFAULT ''
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY, tab TEXT NOT NULL REFERENCES tabs(id), sequence INTEGER NOT NULL,
        created INTEGER NOT NULL, phase TEXT NOT NULL, question TEXT NOT NULL, mode TEXT NOT NULL, most TEXT NOT NULL,
        fee TEXT, paid TEXT, due INTEGER, failure TEXT, held_until REAL NOT NULL
        DEFAULT 0
    ) STRICT""",
    "CREATE INDEX IF NOT EXISTS orders_by_tab ON orders(tab, sequence)",
    "CREATE INDEX IF NOT EXISTS orders_unpaid ON orders(paid) WHERE paid IS NULL",
    """CREATE TABLE IF NOT EXISTS evidence (
        order_id TEXT NOT NULL REFERENCES orders(id), name TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (order_id, name)
    ) STRICT""",
)


class TabStore:
    """One process's connection to the file; StoreUnusable wherever the disk or another program is in the way."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        try:
            self._database = sqlite3.connect(private(path), isolation_level=None, timeout=BUSY_SECONDS)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            self._prepare()
        except StoreUnusable:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All of the block is written, or nothing; a block inside a block is part of it."""
        if self._database.in_transaction:
            yield
            return
        try:
            with all_or_nothing(self._database):
                yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def execute(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _prepare(self) -> None:
        try:
            claim_format(self._database, FORMAT, SIGNED)
        except OtherFormat as error:
            raise StoreUnusable("The file of tabs cannot be used", self.path, str(error)) from error
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=FULL")
        self.execute("PRAGMA foreign_keys=ON")
        with self.writing():
            for statement in _SCHEMA:
                self.execute(statement)

    def _unusable(self, error: Exception) -> StoreUnusable:
        what = f"The file of tabs cannot be read or written: {error}"
        remedy = "Free disk space, make its folder writable, or end the other process, if that is the cause. "
        remedy += "Nothing was sent that is not written."
        return StoreUnusable(what, self.path, remedy)


@contextmanager
def opened(path: Path) -> Iterator[TabStore]:
    """The store, closed at the end."""
    store = TabStore(path)
    try:
        yield store
    finally:
        store.close()
