"""The client's journal: each order is written down before it is sent, so that nothing paid for is ever forgotten.

The salt is in here: it is what proves that an answer belongs to an order. The file is readable by its owner only.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.client.errors import ReceiptNotFound
from troth.client.ordering import SignedOrder
from troth.protocol.types import Hash32

_SCHEMA = """
CREATE TABLE IF NOT EXISTS receipts (
    task_id TEXT PRIMARY KEY, created INTEGER NOT NULL, fee TEXT NOT NULL, salt TEXT NOT NULL,
    order_body TEXT NOT NULL, tokens TEXT NOT NULL DEFAULT '[]', transactions TEXT NOT NULL DEFAULT '{}',
    outcome TEXT, failure TEXT
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the client knows of one task; `outcome` is None until the chain has decided, `fee` is in wei."""

    task_id: str
    created: int
    fee: int
    salt: Hash32
    tokens: tuple[int, ...]
    transactions: dict[str, str]
    outcome: str | None
    failure: str | None

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "task_id": self.task_id,
            "created": self.created,
            "cost_wei": str(self.cost),
            "tokens": len(self.tokens),
            "transactions": self.transactions,
            "outcome": self.outcome,
            "failure": self.failure,
        }

    @property
    def cost(self) -> int:
        """Wei paid: the fee if the answer was accepted or is still being decided, nothing if it was refunded."""
        return self.fee if self.outcome in {None, "accepted"} and self.failure is None else 0


class Receipts:
    """All receipts of one wallet."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ordered(self, signed: SignedOrder) -> None:
        """Note an order that is about to be sent."""
        self._database.execute(
            "INSERT INTO receipts (task_id, created, fee, salt, order_body) VALUES (?, ?, ?, ?, ?)",
            (_name(signed.task_id), int(time.time()), str(signed.fee), signed.salt.hex(), json.dumps(signed.to_json())),
        )

    def answered(self, task: Hash32, tokens: list[int]) -> None:
        """Note the whole answer."""
        self._update(task, "tokens", json.dumps(tokens))

    def posted(self, task: Hash32, transactions: dict[str, str]) -> None:
        """Note the transactions so far."""
        self._update(task, "transactions", json.dumps(transactions))

    def decided(self, task: Hash32, outcome: str) -> None:
        """Note how the chain closed the task."""
        self._update(task, "outcome", outcome)

    def failed(self, task: Hash32, failure: str) -> None:
        """Note why there is no answer."""
        self._update(task, "failure", failure)

    def find(self, task: str) -> Receipt:
        """The receipt of a task, or of the only one whose id starts like this; ReceiptNotFound otherwise."""
        rows = self._rows("WHERE task_id LIKE ? || '%'", task.lower())
        if len(rows) != 1 or not task.startswith("0x"):
            what = "Several tasks start like this" if len(rows) > 1 else "This wallet has no such task"
            raise ReceiptNotFound(what, task, "`troth client receipts` lists them.")
        return rows[0]

    def all(self) -> list[Receipt]:
        """All receipts, newest first."""
        return self._rows("")

    def _rows(self, condition: str, *values: str) -> list[Receipt]:
        found = self._database.execute(
            "SELECT task_id, created, fee, salt, tokens, transactions, outcome, failure FROM receipts "  # noqa: S608
            f"{condition} ORDER BY created DESC",
            values,
        )
        return [
            Receipt(
                row[0], row[1], int(row[2]), Hash32(bytes.fromhex(row[3])), tuple(json.loads(row[4])), json.loads(row[5]), *row[6:]
            )
            for row in found
        ]

    def _update(self, task: Hash32, column: str, value: str) -> None:
        self._database.execute(f"UPDATE receipts SET {column} = ? WHERE task_id = ?", (value, _name(task)))  # noqa: S608


@contextmanager
def opened(path: Path) -> Iterator[Receipts]:
    """The journal, closed at the end."""
    receipts = Receipts(path)
    try:
        yield receipts
    finally:
        receipts.close()


def _name(task: Hash32) -> str:
    return "0x" + task.hex()
