"""Every step of every order, written down before the next one is taken.

An order's phase says how far it came, and its evidence is what was sent about it, in canonical JSON: so a program that
is killed at any place goes on where it was, and whoever must prove something later has what was signed. The file also
holds prompt and salt; it is readable by its owner only.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from troth.client.errors import ReceiptNotFound
from troth.client.tabs.store import TabStore
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Submission
from troth.protocol.types import Hash32

LEASE_SECONDS = 30.0
"""How long an order belongs to the process that serves it, without a sign of life."""
_BEGINNING = re.compile(r"0x[0-9a-f]{1,64}")
_ASKED_TO_END = "asked to end"
_COLUMNS = "id, tab, sequence, created, phase, question, mode, most, fee, paid, due, failure"

Value = TypeVar("Value")


class Phase(StrEnum):
    """How far an order came."""

    ORDERED = "ordered"
    ADMITTED = "admitted"
    ANSWERED = "answered"
    DRAWN_OVER = "draw stored"
    REVEALED = "secret shown"
    UNDRAWN = "undrawn"
    JUDGED = "verdicts stored"
    OPENING = "second secret shown"
    CHECKED = "checked"
    REJECTED = "rejected"
    UNCLEAR = "no majority"
    REFUSED_CHECK = "check refused"
    FAILED = "failed"
    CONTRADICTED = "contradicted"
    RECOVERED = "recovered"


RUNNING = frozenset(
    {Phase.ORDERED, Phase.ADMITTED, Phase.ANSWERED, Phase.DRAWN_OVER, Phase.REVEALED, Phase.JUDGED, Phase.OPENING}
)
"""From here an order goes on by itself."""


@dataclass(frozen=True)
class OrderRecord:
    """One order as it is written down; ``evidence`` by name, in canonical JSON.

    ``fee`` is what the results cost, ``paid`` what was acknowledged; ``due`` the block from which it may be.
    """

    identifier: Hash32
    tab: Hash32
    sequence: int
    created: int
    phase: Phase
    question: str
    mode: str
    most: int
    fee: int | None
    paid: int | None
    due: int | None
    failure: str | None
    evidence: Mapping[str, bytes] = field(repr=False)

    @property
    def name(self) -> str:
        """The order's id as text."""
        return "0x" + self.identifier.hex()

    @cached_property
    def submission(self) -> Submission | None:
        """What was sent; None for an order that was recovered without its request."""
        return self.read("submission", Submission)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The answer, as far as it came."""
        return tuple(json.loads(self.evidence.get("tokens", b"[]")))

    @property
    def asked_to_end(self) -> bool:
        """Whether its scheduler was told to write no more of it, or was about to be."""
        return _ASKED_TO_END in self.evidence

    def read(self, name: str, kind: type[Value]) -> Value | None:
        """A piece of evidence; None where there is none."""
        body = self.evidence.get(name)
        return None if body is None else canonical.decode(kind, body, 1 << 23)


class OrderJournal:
    """The orders in a store."""

    def __init__(self, store: TabStore) -> None:
        self._store = store

    def ordered(
        self, identifier: Hash32, submission: Submission, *, question: str, mode: str, phase: Phase = Phase.ORDERED
    ) -> None:
        """Note an order, inside the transaction that gives its number out."""
        order = submission.order.message
        self.add(identifier, order.tab, order.sequence, order.max_fee, question=question, mode=mode, phase=phase)
        self._put(identifier, "submission", canonical.encode(submission))

    def add(
        self, identifier: Hash32, tab: Hash32, sequence: int, most: int, *, question: str, mode: str, phase: Phase
    ) -> None:
        """Note an order without its request."""
        self._store.execute(
            "INSERT INTO orders (id, tab, sequence, created, phase, question, mode, most, held_until) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO NOTHING",
            _name(identifier),
            _name(tab),
            sequence,
            int(time.time()),
            phase,
            question,
            mode,
            str(most),
            time.time() + LEASE_SECONDS,
        )

    def step(
        self,
        identifier: Hash32,
        phase: Phase | None = None,
        *,
        fee: int | None = None,
        due: int | None = None,
        failure: str | None = None,
        more: Mapping[str, bytes] | None = None,
        **evidence: Any,
    ) -> None:
        """Note a step with what belongs to it, at once; evidence is frozen types, or bytes as they are.

        ``more``: evidence by names that are no words of Python. What is paid has ended, and so has what a scheduler
        contradicted itself in: whoever took a sleeping worker's order over does not begin it again. A contradiction
        alone is still noted of what is paid: an order that the chain voids is paid with 0 while its answer still comes.
        """
        name = _name(identifier)
        with self._store.writing():
            if phase is not None:
                going_on = "UPDATE orders SET phase = ?1 WHERE id = ?2 AND (paid IS NULL OR ?1 = ?3) AND phase != ?3"
                self._store.execute(going_on, phase, name, Phase.CONTRADICTED)
            for column, value in (("fee", _text(fee)), ("due", due), ("failure", failure)):
                if value is not None:
                    self._store.execute(f"UPDATE orders SET {column} = ? WHERE id = ?", value, name)  # noqa: S608
            for one, value in (*evidence.items(), *(more or {}).items()):
                self._put(identifier, one, value if isinstance(value, bytes) else canonical.encode(value))
            self.hold(identifier)

    def asked_to_end(self, identifier: Hash32) -> None:
        """Note that no more of an answer is wanted, before its scheduler is told: who resumes it takes an early end."""
        self.step(identifier, more={_ASKED_TO_END: b"1"})

    def paid(self, identifier: Hash32, amount: int) -> None:
        """Note what was acknowledged, inside the transaction of the voucher that does it."""
        self._store.execute("UPDATE orders SET paid = ? WHERE id = ?", str(amount), _name(identifier))

    def find(self, text: str) -> OrderRecord:
        """The order whose id starts like this; ReceiptNotFound if that is not exactly one."""
        beginning = text.strip().lower()
        rows = self._rows("WHERE id LIKE ?", beginning + "%") if _BEGINNING.fullmatch(beginning) else []
        if len(rows) != 1:
            what = "Several orders start like this" if rows else "This client has no such order"
            raise ReceiptNotFound(what, text[:80], "`troth client receipts` lists them.")
        return rows[0]

    def entry(self, identifier: Hash32) -> OrderRecord:
        """One order."""
        return self.find(_name(identifier))

    def all(self) -> list[OrderRecord]:
        """All orders, newest first."""
        return self._rows("ORDER BY created DESC, rowid DESC")

    def unpaid(self, tab: Hash32) -> list[OrderRecord]:
        """Orders of a tab that no voucher acknowledges yet, by number."""
        return self._rows("WHERE tab = ? AND paid IS NULL ORDER BY sequence", _name(tab))

    def between(self, tab: Hash32, first: int, last: int) -> list[OrderRecord]:
        """Orders of a tab with these numbers, paid or not."""
        return self._rows("WHERE tab = ? AND sequence BETWEEN ? AND ? ORDER BY sequence", _name(tab), first, last)

    def due(self, tab: Hash32, block: int) -> list[OrderRecord]:
        """Those of them at which there may be something to do: not undrawn ones whose lag still runs."""
        waiting = (Phase.UNDRAWN, Phase.UNCLEAR)
        condition = "WHERE tab = ? AND paid IS NULL AND NOT (phase IN (?, ?) AND due > ?) ORDER BY sequence"
        return self._rows(condition, _name(tab), *waiting, block)

    def doubtable(self, tab: Hash32, mode: str, block: int) -> list[OrderRecord]:
        """Orders whose answers were to be checked in this mode, whose lag still runs, and that are in no court."""
        condition = (
            "WHERE tab = ? AND mode = ? AND due > ? "
            "AND id NOT IN (SELECT order_id FROM evidence WHERE name = 'court') ORDER BY sequence"
        )
        return self._rows(condition, _name(tab), mode, block)

    def of_question(self, question: str) -> list[OrderRecord]:
        """The orders that were made for one question, oldest first."""
        return self._rows("WHERE question = ? ORDER BY created, rowid", question)

    def of(self, tab: Hash32, number: int) -> list[OrderRecord]:
        """The order with a tab's number; none where this file does not know it, as after a backup."""
        return self._rows("WHERE tab = ? AND sequence = ?", _name(tab), number)

    # ---- who works on it

    def hold(self, identifier: Hash32) -> None:
        """A sign of life of whoever works on an order."""
        until, name = time.time() + LEASE_SECONDS, _name(identifier)
        self._store.execute("UPDATE orders SET held_until = ? WHERE id = ?", until, name)

    @contextmanager
    def held(self, identifier: Hash32) -> Iterator[None]:
        """Signs of life while its scheduler is silent: another process would ask after the order, and give it up."""

        async def hold() -> None:
            while True:
                await asyncio.sleep(LEASE_SECONDS / 3)
                self.hold(identifier)

        holding = asyncio.create_task(hold())
        try:
            yield
        finally:
            holding.cancel()

    def release(self, identifier: Hash32) -> None:
        """Nobody works on it now."""
        self._store.execute("UPDATE orders SET held_until = 0 WHERE id = ?", _name(identifier))

    def take(self, identifier: Hash32) -> bool:
        """Work on an order from now on; False while anybody does, in this process or another one.

        Two would undo each other's steps.
        """
        with self._store.writing():
            ((until,),) = self._store.execute("SELECT held_until FROM orders WHERE id = ?", _name(identifier))
            # No lease lasts longer: one that seems to was given before the clock was set back.
            if 0 < until - time.time() <= LEASE_SECONDS:
                return False
            self.hold(identifier)
        return True

    def _put(self, identifier: Hash32, name: str, body: bytes) -> None:
        self._store.execute(
            "INSERT INTO evidence (order_id, name, body) VALUES (?, ?, ?) "
            "ON CONFLICT(order_id, name) DO UPDATE SET body = excluded.body",
            _name(identifier),
            name,
            body,
        )

    def _rows(self, condition: str, *values: object) -> list[OrderRecord]:
        # The statement is put together from this module's own constants.
        rows = self._store.execute(f"SELECT {_COLUMNS} FROM orders {condition}", *values)  # noqa: S608
        return [self._entry(*row) for row in rows]

    def _entry(self, identifier: str, tab: str, *rest: Any) -> OrderRecord:
        sequence, created, phase, question, mode, most, fee, paid, due, failure = rest
        found = self._store.execute("SELECT name, body FROM evidence WHERE order_id = ?", identifier)
        return OrderRecord(
            identifier=Hash32(bytes.fromhex(identifier[2:])),
            tab=Hash32(bytes.fromhex(tab[2:])),
            sequence=sequence,
            created=created,
            phase=Phase(phase),
            question=question,
            mode=mode,
            most=int(most),
            fee=None if fee is None else int(fee),
            paid=None if paid is None else int(paid),
            due=due,
            failure=failure,
            evidence={name: bytes(body) for name, body in found},
        )


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _name(identifier: Hash32) -> str:
    return "0x" + identifier.hex()
