"""Which completion was made of which tasks, and what they cost: kept beside the receipts, so that a receipt stays.

No text is in here; questions and answers are in the client's receipts alone.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.chain.formats import OtherFormat, all_or_nothing, claim_format, private
from troth.client.errors import ReceiptsUnreadable
from troth.client.gateway.completion import PricedQuestion

FORMAT = 1
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS completions (
        id TEXT PRIMARY KEY, created INTEGER NOT NULL, model TEXT NOT NULL, note TEXT
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS tasks (
        task_id TEXT PRIMARY KEY, completion TEXT NOT NULL REFERENCES completions(id), position INTEGER NOT NULL,
        day TEXT NOT NULL, fee TEXT NOT NULL, paid TEXT
    ) STRICT""",
    "CREATE INDEX IF NOT EXISTS tasks_by_completion ON tasks(completion)",
    "CREATE INDEX IF NOT EXISTS tasks_by_day ON tasks(day)",
)


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """A completion, and its tasks in the order of its choices."""

    identifier: str
    created: int
    model: str
    tasks: tuple[str, ...]
    note: str | None


class CompletionLedger:
    """One wallet's completions; ReceiptsUnreadable if the file is none of this program's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(private(path), isolation_level=None)
        try:
            claim_format(self._database, FORMAT)
            self._execute("PRAGMA journal_mode=WAL")
            self._execute("PRAGMA synchronous=FULL")
            for statement in _SCHEMA:
                self._execute(statement)
        except OtherFormat as error:
            self._database.close()
            raise ReceiptsUnreadable("The gateway's file cannot be used", path, str(error)) from error
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise self._unreadable(error) from error
        except ReceiptsUnreadable:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ordered(self, identifier: str, model: str, asked: Sequence[PricedQuestion]) -> None:
        """Note a completion's orders, all or none of them, before the first is sent."""
        now = int(time.time())
        with self._writing():
            self._execute("INSERT INTO completions (id, created, model) VALUES (?, ?, ?)", identifier, now, model)
            for position, order in enumerate(asked):
                self._execute(
                    "INSERT INTO tasks (task_id, completion, position, day, fee) VALUES (?, ?, ?, ?, ?)",
                    "0x" + order.task_id.hex(),
                    identifier,
                    position,
                    today(),
                    str(order.fee),
                )

    def paid(self, task: str, units: int) -> None:
        """Note what a task has cost in the end; nothing of it counts against the budget if that is zero."""
        self._execute("UPDATE tasks SET paid = ? WHERE task_id = ?", str(units), task)

    def noted(self, identifier: str, note: str) -> None:
        """Note something about a completion, such as that its reader went away."""
        self._execute("UPDATE completions SET note = ? WHERE id = ?", note, identifier)

    def find(self, identifier: str) -> CompletionRecord | None:
        """The completion of this id, or None."""
        row = self._execute("SELECT id, created, model, note FROM completions WHERE id = ?", identifier).fetchone()
        if row is None:
            return None
        tasks = self._execute("SELECT task_id FROM tasks WHERE completion = ? ORDER BY position", identifier)
        return CompletionRecord(row[0], row[1], row[2], tuple(one for (one,) in tasks.fetchall()), row[3])

    def spent(self, day: str) -> int:
        """What the orders of a day cost, or their fee while that is open."""
        rows = self._execute("SELECT COALESCE(paid, fee) FROM tasks WHERE day = ?", day).fetchall()
        return sum(int(units) for (units,) in rows)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """All of the block is written, or nothing."""
        try:
            with all_or_nothing(self._database):
                yield
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.DatabaseError) -> ReceiptsUnreadable:
        what = f"The gateway's record cannot be read or written: {error}"
        return ReceiptsUnreadable(what, self._path, "Free disk space, or move the file away and keep it.")


def today() -> str:
    """The day that a budget is for, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())
