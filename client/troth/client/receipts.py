"""The client's journal: each order is written down before it is sent, so that nothing paid for is ever forgotten.

Order and salt are in here: the salt proves that an answer belongs to an order, and the order holds the prompt's tokens.
The file is readable by its owner only.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.client.errors import ReceiptNotFound, ReceiptsUnreadable
from troth.client.ordering import SignedOrder
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

_SCHEMA = """
CREATE TABLE IF NOT EXISTS receipts (
    task_id TEXT PRIMARY KEY, chain_id TEXT NOT NULL, contract TEXT NOT NULL,
    created INTEGER NOT NULL, fee TEXT NOT NULL, salt TEXT NOT NULL,
    order_body TEXT NOT NULL, tokens TEXT NOT NULL DEFAULT '[]', transactions TEXT NOT NULL DEFAULT '{}',
    outcome TEXT, paid TEXT, failure TEXT, served_by TEXT, served_signature TEXT
) STRICT
"""
_ADDED = ("served_by", "served_signature")
"""Columns that a file of an earlier version lacks."""
_COLUMNS = (
    "task_id, created, fee, salt, order_body, tokens, transactions, outcome, paid, failure, served_by, served_signature"
)
_BEGINNING = re.compile(r"0x[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the client wrote down of one task; wei. `outcome` and `paid` are the chain's, None until it has decided.

    `served_by` is the node that signed the answer to the client (types.Served), with that signature in hex; or None.
    """

    task_id: str
    created: int
    fee: int
    salt: Hash32
    body: dict[str, Any]
    tokens: tuple[int, ...]
    transactions: dict[str, str]
    outcome: str | None
    paid: int | None
    failure: str | None
    served_by: str | None = None
    served_signature: str | None = None

    @property
    def identifier(self) -> Hash32:
        """The task's id as bytes."""
        return Hash32(bytes.fromhex(self.task_id[2:]))

    @property
    def scheduler(self) -> str:
        """Operator address of the scheduler that was asked."""
        return str(self.body["order"]["scheduler"])

    @property
    def execution_class(self) -> Hash32:
        """Id of the class that was asked for."""
        return Hash32(bytes.fromhex(self.body["order"]["execution_class"][2:]))

    @property
    def deadline(self) -> int:
        """Unix time until which the scheduler may open the task."""
        return int(self.body["order"]["deadline"])

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.body["request"]["prompt_tokens"])


class Receipts:
    """All receipts of one wallet under one contract; ReceiptsUnreadable if the file is none of this program's."""

    def __init__(self, path: Path, domain: Domain) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)
        self._path = path
        self._place = (str(domain.chain_id), domain.contract)
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._execute("PRAGMA journal_mode=WAL")
            self._execute("PRAGMA synchronous=FULL")
            self._execute(_SCHEMA)
            self._add_columns()
        except ReceiptsUnreadable:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ordered(self, signed: SignedOrder) -> None:
        """Note an order that is about to be sent."""
        self._execute(
            "INSERT INTO receipts (task_id, chain_id, contract, created, fee, salt, order_body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            _name(signed.task_id),
            *self._place,
            int(time.time()),
            str(signed.fee),
            signed.salt.hex(),
            json.dumps(signed.to_json()),
        )

    def answered(self, task: Hash32, tokens: list[int]) -> None:
        """Note the answer, as far as it has come."""
        self._execute("UPDATE receipts SET tokens = ? WHERE task_id = ?", json.dumps(tokens), _name(task))

    def served(self, task: Hash32, node: Address, signature: bytes) -> None:
        """Note which node signed the answer as its own: evidence, whatever is committed on chain afterwards."""
        self._execute(
            "UPDATE receipts SET served_by = ?, served_signature = ? WHERE task_id = ?",
            node,
            "0x" + signature.hex(),
            _name(task),
        )

    def posted(self, task: Hash32, transactions: dict[str, str]) -> None:
        """Note the transactions so far."""
        self._execute("UPDATE receipts SET transactions = ? WHERE task_id = ?", json.dumps(transactions), _name(task))

    def decided(self, task: Hash32, outcome: str, paid: int) -> None:
        """Note how the chain closed the task, and the wei that it cost."""
        self._execute("UPDATE receipts SET outcome = ?, paid = ? WHERE task_id = ?", outcome, str(paid), _name(task))

    def failed(self, task: Hash32, failure: str) -> None:
        """Note why the answer did not come, or is not to be trusted."""
        self._execute("UPDATE receipts SET failure = ? WHERE task_id = ?", failure, _name(task))

    def find(self, task: str) -> Receipt:
        """The receipt of a task, or of the only one whose id starts like this; ReceiptNotFound otherwise."""
        beginning = task.strip().lower()
        # Nothing but hexadecimal goes into the pattern, so none of it is a wildcard.
        rows = self._rows("AND task_id LIKE ?", beginning + "%") if _BEGINNING.fullmatch(beginning) else []
        if len(rows) != 1:
            what = "Several tasks start like this" if rows else "This wallet has no such task"
            raise ReceiptNotFound(what, task, "`troth client receipts` lists them.")
        return rows[0]

    def all(self) -> list[Receipt]:
        """All receipts, newest first."""
        return self._rows("")

    def _add_columns(self) -> None:
        """Bring the table of an earlier version up to this one; what is in it stays."""
        if not self._missing():
            return
        # Locked before it is looked at again: another process may be doing the same.
        self._execute("BEGIN IMMEDIATE")
        try:
            for column in self._missing():
                self._execute(f"ALTER TABLE receipts ADD COLUMN {column} TEXT")
        except BaseException:
            self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    def _missing(self) -> list[str]:
        present = {row[1] for row in self._execute("PRAGMA table_info(receipts)").fetchall()}
        return [column for column in _ADDED if column not in present]

    def _rows(self, condition: str, *values: str) -> list[Receipt]:
        # The statement is put together from this module's own constants.
        query = (
            f"SELECT {_COLUMNS} FROM receipts WHERE chain_id = ? AND contract = ? {condition} "  # noqa: S608
            "ORDER BY created DESC, rowid DESC"
        )
        return [_receipt(*row) for row in self._execute(query, *self._place, *values).fetchall()]

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise ReceiptsUnreadable(
                f"The receipts cannot be read or written: {error}",
                self._path,
                "Free disk space or end the other process if that is the cause; else move the file away and keep it.",
            ) from error


@contextmanager
def opened(path: Path, domain: Domain) -> Iterator[Receipts]:
    """The journal, closed at the end."""
    receipts = Receipts(path, domain)
    try:
        yield receipts
    finally:
        receipts.close()


def _receipt(task: str, created: int, fee: str, salt: str, body: str, *rest: Any) -> Receipt:
    tokens, transactions, outcome, paid, failure, served_by, served_signature = rest
    return Receipt(
        task_id=task,
        created=created,
        fee=int(fee),
        salt=Hash32(bytes.fromhex(salt)),
        body=json.loads(body),
        tokens=tuple(json.loads(tokens)),
        transactions=json.loads(transactions),
        outcome=outcome,
        paid=None if paid is None else int(paid),
        failure=failure,
        served_by=served_by,
        served_signature=served_signature,
    )


def _name(task: Hash32) -> str:
    return "0x" + task.hex()
