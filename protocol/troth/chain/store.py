"""Followed blocks and logs in SQLite, so that a restart goes on where the process stopped.

Blocks are kept for the last ``WINDOW`` heights, to recognise a reorganisation; logs are kept for ever. A block and its
logs are written in one transaction: the file never holds half a block. One process at a time has the file: of two
followers each would take the other's blocks for its own and fold none of their events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from troth.chain.errors import EventFileInUse, EventFileUnusable, WrongChain
from troth.chain.formats import SMALL_CACHE, OtherFormat, all_or_nothing, claim_format
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.types import Address, Hash32

WINDOW = 64
"""Heights for which block hashes are kept: two epochs of Ethereum, after which a block is final."""

PATIENCE = 5.0
"""Seconds to wait for a process that is just closing the file."""

FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS source (
    only INTEGER PRIMARY KEY CHECK (only = 0), chain TEXT NOT NULL, contract TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS logs (
    block INTEGER NOT NULL, log_index INTEGER NOT NULL, block_hash BLOB NOT NULL, transaction_hash BLOB NOT NULL,
    topics BLOB NOT NULL, data BLOB NOT NULL, address TEXT NOT NULL, PRIMARY KEY (block, log_index)
) WITHOUT ROWID;
"""


class EventStore:
    """Logs of one contract, or of a deployment's contracts, in one file; ":memory:" keeps none after the process."""

    def __init__(self, path: Path | None, chain_id: int, contract: Address) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(":memory:" if path is None else path, timeout=PATIENCE, isolation_level=None)
        self._contract = contract
        try:
            self._open()
        except OtherFormat as error:
            self._database.close()
            raise EventFileUnusable("The file of events cannot be used", path, f"{error}: it is read again.") from error
        except sqlite3.OperationalError as error:
            self._database.close()
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            remedy = "Stop what runs on this home folder, or give this one its own home folder."
            raise EventFileInUse("Another process follows the chain in this file", path, remedy) from error
        self._claim(path, str(chain_id), contract)

    def _open(self) -> None:
        # Before the first use of the log: SQLite then holds the file until it is closed or the process is gone.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        claim_format(self._database, FORMAT)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(SMALL_CACHE)
        self._database.executescript(_SCHEMA)

    def _claim(self, path: Path | None, chain: str, contract: Address) -> None:
        self._database.execute("INSERT OR IGNORE INTO source VALUES (0, ?, ?)", (chain, contract))
        row = self._database.execute("SELECT chain, contract FROM source").fetchone()
        if row != (chain, contract):
            self._database.close()
            raise WrongChain(
                f"The event file is of contract {row[1]} on chain {row[0]}", path, "Choose another file or home folder."
            )

    def tip(self) -> tuple[int, Hash32] | None:
        """The last followed block; None before the first."""
        row = self._database.execute("SELECT number, hash FROM blocks ORDER BY number DESC LIMIT 1").fetchone()
        return None if row is None else (row[0], Hash32(row[1]))

    def recent_blocks(self) -> list[tuple[int, Hash32]]:
        """The kept blocks, newest first."""
        rows = self._database.execute("SELECT number, hash FROM blocks ORDER BY number DESC")
        return [(number, Hash32(block_hash)) for number, block_hash in rows]

    def append(self, number: int, block_hash: Hash32, logs: list[EventLog]) -> None:
        """Make ``number`` the tip, with all logs since the tip before it."""
        rows = [
            (
                log.meta.block,
                log.meta.log_index,
                log.meta.block_hash,
                log.meta.transaction,
                b"".join(log.topics),
                log.data,
                "" if log.address == self._contract else log.address,
            )
            for log in logs
        ]
        with all_or_nothing(self._database):
            self._database.executemany("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._database.execute("INSERT INTO blocks VALUES (?, ?)", (number, block_hash))
            self._database.execute("DELETE FROM blocks WHERE number <= ?", (number - WINDOW,))

    def rewind(self, number: int) -> None:
        """Forget every block above ``number`` and its logs."""
        with all_or_nothing(self._database):
            self._database.execute("DELETE FROM logs WHERE block > ?", (number,))
            self._database.execute("DELETE FROM blocks WHERE number > ?", (number,))

    def logs(self, after: int = -1) -> Iterator[EventLog]:
        """The logs of blocks above ``after``, all of them by default, in the order of the chain."""
        rows = self._database.execute(
            "SELECT block, log_index, block_hash, transaction_hash, topics, data, address FROM logs "
            "WHERE block > ? ORDER BY block, log_index",
            (after,),
        )
        for block, log_index, block_hash, transaction, topics, data, address in rows:
            meta = LogMeta(block, log_index, Hash32(block_hash), Hash32(transaction))
            split = tuple(Hash32(topics[start : start + 32]) for start in range(0, len(topics), 32))
            yield EventLog(Address(address or self._contract), split, data, meta)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
