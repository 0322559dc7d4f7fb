"""The client's journal: each order is written down before it is sent, so that nothing paid for is ever forgotten.

The salt is in here: it is what proves that an answer belongs to an order. The file is readable by its owner only, and
holds answers but no questions.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.client.errors import ReceiptNotFound
from troth.client.ordering import SignedOrder
from troth.client.standing import transactions_of
from troth.protocol.state import TaskRecord
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

_SCHEMA = """
CREATE TABLE IF NOT EXISTS receipts (
    task_id TEXT PRIMARY KEY, chain_id TEXT NOT NULL, contract TEXT NOT NULL, created INTEGER NOT NULL,
    deadline INTEGER NOT NULL, scheduler TEXT NOT NULL, execution_class TEXT NOT NULL, fee TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, salt TEXT NOT NULL, signature TEXT NOT NULL,
    tokens TEXT NOT NULL DEFAULT '[]', transactions TEXT NOT NULL DEFAULT '{}', outcome TEXT, failure TEXT
) STRICT
"""
_COLUMNS = (
    "task_id, created, deadline, scheduler, execution_class, fee, prompt_tokens, salt, tokens, transactions, outcome, "
    "failure"
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the journal knows of one task; `outcome` is None until the chain decided, `fee` is in wei."""

    task_id: Hash32
    created: int
    deadline: int
    scheduler: Address
    execution_class: Hash32
    fee: int
    prompt_tokens: int
    salt: Hash32
    tokens: tuple[int, ...]
    transactions: dict[str, str]
    outcome: str | None
    failure: str | None

    @property
    def name(self) -> str:
        """The task id as people write it."""
        return "0x" + self.task_id.hex()


class Receipts:
    """All receipts of one wallet under one contract."""

    def __init__(self, path: Path, domain: Domain) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)
        self._place = (str(domain.chain_id), domain.contract)
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ordered(self, signed: SignedOrder) -> None:
        """Note an order that is about to be sent."""
        order = signed.order
        values = (
            *(_name(signed.task_id), *self._place, int(time.time()), order.deadline, order.scheduler),
            *("0x" + order.execution_class.hex(), str(signed.fee), len(signed.request.prompt_tokens)),
            *(signed.salt.hex(), signed.signature.hex()),
        )
        self._database.execute(
            "INSERT INTO receipts (task_id, chain_id, contract, created, deadline, scheduler, execution_class, fee, "
            "prompt_tokens, salt, signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )

    def answered(self, task: Hash32, tokens: list[int]) -> None:
        """Note the whole answer."""
        self._database.execute("UPDATE receipts SET tokens = ? WHERE task_id = ?", (json.dumps(tokens), _name(task)))

    def followed(self, task: Hash32, record: TaskRecord) -> None:
        """Note what the chain says of a task: its transactions, and its outcome once it has one."""
        outcome = None if record.outcome is None else record.outcome.name.lower()
        self._database.execute(
            "UPDATE receipts SET transactions = ?, outcome = ? WHERE task_id = ?",
            (json.dumps(transactions_of(record)), outcome, _name(task)),
        )

    def failed(self, task: Hash32, failure: str) -> None:
        """Note why there is no answer."""
        self._database.execute("UPDATE receipts SET failure = ? WHERE task_id = ?", (failure, _name(task)))

    def find(self, task: str) -> Receipt:
        """The receipt of a task, or of the only one whose id starts like this; ReceiptNotFound otherwise."""
        beginning = task.lower()
        rows = [one for one in self.all() if beginning.startswith("0x") and one.name.startswith(beginning)]
        if len(rows) != 1:
            what = "Several tasks start like this" if rows else "This wallet has no such task"
            raise ReceiptNotFound(what, task, "`troth client receipts` lists them; ids start with 0x.")
        return rows[0]

    def all(self) -> list[Receipt]:
        """All receipts under this contract, newest first."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM receipts WHERE chain_id = ? AND contract = ? ORDER BY created DESC, rowid DESC",  # noqa: S608
            self._place,
        )
        return [_receipt(*row) for row in rows]


@contextmanager
def opened(path: Path, domain: Domain) -> Iterator[Receipts]:
    """The journal, closed at the end."""
    receipts = Receipts(path, domain)
    try:
        yield receipts
    finally:
        receipts.close()


def _receipt(  # noqa: PLR0917 - the columns of the table, in their order
    task_id: str,
    created: int,
    deadline: int,
    scheduler: str,
    execution_class: str,
    fee: str,
    prompt_tokens: int,
    salt: str,
    tokens: str,
    transactions: str,
    outcome: str | None,
    failure: str | None,
) -> Receipt:
    return Receipt(
        task_id=Hash32(bytes.fromhex(task_id[2:])),
        created=created,
        deadline=deadline,
        scheduler=Address(scheduler),
        execution_class=Hash32(bytes.fromhex(execution_class[2:])),
        fee=int(fee),
        prompt_tokens=prompt_tokens,
        salt=Hash32(bytes.fromhex(salt)),
        tokens=tuple(json.loads(tokens)),
        transactions=json.loads(transactions),
        outcome=outcome,
        failure=failure,
    )


def _name(task: Hash32) -> str:
    return "0x" + task.hex()
