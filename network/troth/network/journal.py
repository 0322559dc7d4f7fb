"""What is written down of a creation under way, beside the file that it will write: a kill anywhere loses nothing.

SQLite with synchronous FULL, held by one process at a time. Every transaction is in it before it is sent, as it was
signed. A second run hands the same bytes in again, so that nothing is deployed twice, whatever became of the first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from troth.chain.formats import all_or_nothing, claim_format, private
from troth.chain.records import TransactionReceipt
from troth.network.errors import CreationRefused
from troth.protocol.types import Address, Hash32, to_address, to_hash32

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS wish (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (number INTEGER PRIMARY KEY, step TEXT NOT NULL, raw BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS mined (
    step TEXT PRIMARY KEY, hash BLOB NOT NULL, block INTEGER NOT NULL, gas INTEGER NOT NULL, cost TEXT NOT NULL,
    created TEXT
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class MinedStep:
    """A step that is done; ``cost`` in wei."""

    transaction: Hash32
    block: int
    gas: int
    cost: int
    created: Address | None


def journal_of(output: Path) -> Path:
    """Where the creation of this file is written down while it is under way."""
    return output.with_name(output.name + ".journal")


class CreationJournal:
    """One creation under way; it is a ``DeploymentRecord``. Close it, and remove it when the network is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(private(path), timeout=0.5, isolation_level=None)
        try:
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._database.execute("PRAGMA synchronous=FULL")
            claim_format(self._database, FORMAT, "Finish with that version, or move the file away")
            self._database.executescript(SCHEMA)
            # Takes the lock, and keeps it until the file is closed.
            self._database.execute("BEGIN EXCLUSIVE")
            self._database.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._database.close()
            remedy = "If another run is under way, wait for it. Else move the file away: what it deployed stays."
            raise CreationRefused(f"The journal of this creation cannot be used: {error}", path, remedy) from error

    def close(self) -> None:
        """Let another run have it."""
        self._database.close()

    def remove(self) -> None:
        """The network stands and is written: nothing is left to carry on."""
        self.close()
        self._path.unlink(missing_ok=True)

    def require_wish(self, wish: dict[str, object]) -> None:
        """Write down what is created at the first run; CreationRefused where a later one wants something else."""
        text = {name: json.dumps(value, sort_keys=True) for name, value in wish.items()}
        kept = dict(self._database.execute("SELECT name, value FROM wish").fetchall())
        if not kept:
            with all_or_nothing(self._database):
                self._database.executemany("INSERT INTO wish VALUES (?, ?)", sorted(text.items()))
            return
        if changed := sorted(name for name in text if kept.get(name) != text[name]):
            was = ", ".join(f"{name} {str(kept.get(name))[:80]}" for name in changed)
            remedy = f"Repeat it with the same options, or move {self._path} away to begin another network."
            raise CreationRefused(
                f"A creation is under way here with other options: {', '.join(changed)}", f"it began with {was}", remedy
            )

    def attempts(self, step: str) -> Sequence[bytes]:
        """The transactions that were signed for a step so far, the oldest first."""
        found = self._database.execute("SELECT raw FROM signed WHERE step = ? ORDER BY number", (step,)).fetchall()
        return tuple(raw for (raw,) in found)

    def keep(self, step: str, raw: bytes) -> None:
        """Write a signed transaction down; it is on disk when this returns."""
        self._database.execute("INSERT INTO signed (step, raw) VALUES (?, ?)", (step, raw))

    def mined(self, step: str, receipt: TransactionReceipt) -> None:
        """A step is done."""
        row = (step, receipt.transaction, receipt.block, receipt.gas_used, str(receipt.cost), receipt.created)
        self._database.execute("INSERT OR REPLACE INTO mined VALUES (?, ?, ?, ?, ?, ?)", row)

    def steps(self) -> dict[str, MinedStep]:
        """What was mined, by step."""
        rows = self._database.execute("SELECT step, hash, block, gas, cost, created FROM mined").fetchall()
        return {
            step: MinedStep(to_hash32(name), block, gas, int(cost), to_address(created) if created else None)
            for step, name, block, gas, cost, created in rows
        }
