"""A gateway whose disk is full for a while: readers are told, places come back, and later completions are noted."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troth.client.errors import ReceiptsUnreadable
from troth.client.gateway import questions
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.questions import PricedQuestion, Questions, new_question
from troth.client.orders.updates import EndedUpdate, FinishedUpdate


class Refusing:
    """A connection whose disk takes no COMMIT as long as it is full."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.full = True

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return self.database.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


class FullDisk:
    """A ledger that can note nothing."""

    def paid(self, _task: str, _wei: int) -> None:
        raise ReceiptsUnreadable("The gateway's record cannot be read or written: full", "x", "Free disk space.")


class Reader:
    """What hears of one question."""

    left = False

    def __init__(self, count: int) -> None:
        self.signed = [PricedQuestion(new_question(), 5) for _ in range(count)]
        self.endings = [asyncio.Event() for _ in range(count)]
        self.orders: dict[int, str] = {}
        self.ends: dict[int, Any] = {}
        self.told: list[tuple[int, str]] = []

    def hear(self, number: int, told: Any) -> None:
        self.told.append((number, type(told).__name__))

    def cost_of(self, _number: int) -> int:
        return 5

    def note(self, number: int, update: Any) -> Any:
        if isinstance(update, EndedUpdate):
            self.ends[number] = update
            return update
        return None


class Held:
    """A session that stays open."""

    @contextmanager
    def use(self) -> Iterator[Any]:
        yield SimpleNamespace(session=None)


def asked(monkeypatch: pytest.MonkeyPatch, *updates: Any) -> Questions:
    async def ask(*_arguments: Any, **_named: Any) -> AsyncGenerator[Any, None]:
        for update in updates:
            if isinstance(update, Exception):
                raise update
            yield update

    monkeypatch.setattr(questions, "ask", ask)
    metrics: Any = SimpleNamespace(
        running=SimpleNamespace(set=lambda _value: None),
        failures=SimpleNamespace(labels=lambda _hop: SimpleNamespace(inc=lambda: None)),
        decided=lambda *_arguments: None,
    )
    ledger: Any = FullDisk()
    return Questions(ledger, metrics, 1)


async def finished(made: Questions, reader: Any) -> None:
    held: Any = Held()
    wish: Any = None
    made.start(held, reader, [(1,)] * len(reader.signed), wish, made.take_places(len(reader.signed), in_turn=True))
    await asyncio.wait_for(asyncio.gather(*made._running), 5)


def test_a_completion_can_be_noted_once_the_disk_has_room_again(tmp_path: Path) -> None:
    ledger = CompletionLedger(tmp_path / "completions.sqlite")
    disk: Any = Refusing(ledger._database)
    ledger._database = disk
    order: Any = SimpleNamespace(task_id=b"\x01" * 32, fee=7)
    with pytest.raises(ReceiptsUnreadable):
        ledger.ordered("first", "model", [order])
    disk.full = False
    ledger.ordered("second", "model", [order])
    assert ledger.find("first") is None
    assert ledger.find("second") is not None
    ledger.close()


async def test_a_question_that_fails_is_told_and_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reader = asked(monkeypatch, RuntimeError("what nobody foresaw")), Reader(3)
    await finished(made, reader)
    assert [number for number, _ in reader.told] == [0]
    assert made.take_places(1) == 1


async def test_the_end_of_an_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: Any = object.__new__(EndedUpdate)
    object.__setattr__(ended, "outcome", "checked")
    whole: Any = object.__new__(FinishedUpdate)
    made, reader = asked(monkeypatch, whole, ended), Reader(1)
    await finished(made, reader)
    assert reader.told == [(0, "FinishedUpdate"), (0, "EndedUpdate")]
    assert made.take_places(1) == 1
