"""Direct mode from the client's side: an honest entry, and entries that drop, forge, replay, reorder, stall and die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.toy_entry import ENTRY, ToyEntry, said, toy_entry
from support.toy_market import NODE_KEYS
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import Stage, toy_stage

from troth.client.choices import SamplingChoices
from troth.client.direct.entrance import Entrance
from troth.client.errors import ModelUnavailable
from troth.client.orders import checking, course
from troth.client.orders.asking import ask
from troth.client.orders.failing import AnswerChanged, OrderStalled
from troth.client.orders.journal import Phase
from troth.client.orders.updates import EndedUpdate, OrderOutcome, TextUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.protocol.market.prices import MILLION

PROMPT = tuple(range(3, 40))
ALWAYS = Wish(SamplingChoices(64), CheckWish("lot", MILLION))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "ENTRY_SECONDS", 1.0)
    monkeypatch.setattr(checking, "ENTRY_SECONDS", 1.0)


async def asked(stage: Stage) -> list[Any]:
    return [update async for update in ask(stage.session, PROMPT, ALWAYS)]


def text_of(updates: list[Any]) -> str:
    return "".join(update.text for update in updates if isinstance(update, TextUpdate))


def outcome(updates: list[Any]) -> OrderOutcome:
    return next(update.outcome for update in updates if isinstance(update, EndedUpdate))


def shunned(stage: Stage) -> bool:
    entrance = stage.session.entrance
    assert isinstance(entrance, Entrance)
    return entrance.enter(stage.tab, stage.session.class_id or stage.tab, ()) is None


async def one_answer(stage: Stage, entry: ToyEntry, *, blamed: bool) -> None:
    """The question is answered, checked and paid with one order, whatever its entry does."""
    updates = await asked(stage)
    assert text_of(updates) == "hello world"
    assert outcome(updates) is OrderOutcome.CHECKED
    (record,) = stage.session.journal.all()
    assert record.phase is Phase.CHECKED
    assert record.paid == record.fee == stage.book().spent
    assert len(stage.scheduler.orders) == 1
    assert not stage.session.books.record(stage.tab).doubt
    assert shunned(stage) == blamed
    assert entry.seen[0] == "order"


async def test_an_order_and_its_check_need_no_line_of_the_schedulers_own(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:
        await one_answer(stage, entry, blamed=False)
        assert entry.seen == ["order", "secret", "tiles"]
        assert not {"order", "again", "secret", "tiles"} & set(stage.scheduler.calls_of)


async def test_a_conversation_enters_where_it_was_served(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage, nodes=tuple(NODE_KEYS)):
        await asked(stage)
        (record,) = stage.session.journal.all()
        served = next(iter(stage.scheduler.orders.values())).nodes[-1]
        entrance, tokens = stage.session.entrance, (*PROMPT, *record.tokens, 9, 9)
        assert entrance is not None
        assert {entrance.enter(stage.tab, stage.tab, tokens) for _ in range(20)} == {served}


def dropped(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [line for line in lines if line.get("position") != 1]


def forged(one: ToyOrder, lines: list[Any]) -> list[Any]:
    """Another first token, under a signature of a node that does not serve, as the entry is nearly always."""
    other = one.tokens[0] - 1
    word = said(one, [other], NODE_KEYS[one.not_drawn])
    return [lines[0], {"type": "token", "position": 0, "id": other}, word, *lines[3:]]


def forged_unsigned(one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [line | {"id": one.tokens[0] - 1} if line.get("position") == 0 else line for line in lines]


def swapped(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [lines[0], *lines[3:5], *lines[1:3], *lines[5:]]


def repeated(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [*lines[:3], *lines[1:3], *lines[3:]]


def other_nodes(one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [lines[0] | {"nodes": [one.not_drawn]}, *lines[1:]]


def without_draw(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return lines[:-1]


def stale(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    """A draw that is not the scheduler's."""
    draw = lines[-1]["draw"]
    block = str(int(draw["message"]["block_number"]) - 40)
    return [*lines[:-1], lines[-1] | {"draw": draw | {"message": draw["message"] | {"block_number": block}}}]


def says_failed(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [lines[0], {"type": "failed", "code": "order_failed", "message": "no", "remedy": ""}]


def garbage(_one: ToyOrder, _lines: list[Any]) -> list[Any]:
    return [b"no json\n"]


def silent(_one: ToyOrder, _lines: list[Any]) -> list[Any]:
    return [None]


def silent_midway(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [*lines[:3], None]


def dies(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [*lines[:3], b'{"type": "tok']


@pytest.mark.parametrize(
    "tamper",
    [
        dropped,
        forged,
        forged_unsigned,
        swapped,
        repeated,
        other_nodes,
        without_draw,
        stale,
        says_failed,
        garbage,
        silent,
        silent_midway,
        dies,
    ],
)
async def test_an_entry_that_lies_stalls_or_dies_costs_seconds_and_nothing_else(tmp_path: Path, tamper: Any) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:
        entry.tamper = tamper
        # A draw that is left out, or an honest word of failure, is nobody's lie by itself.
        await one_answer(stage, entry, blamed=tamper is not without_draw)
        assert "again" in stage.scheduler.calls_of


async def test_an_entry_that_refuses_what_its_scheduler_takes_is_left(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:
        entry.takes = False
        await one_answer(stage, entry, blamed=True)
        assert "order" in stage.scheduler.calls_of


async def test_a_scheduler_that_denies_an_order_that_it_admitted_is_not_paid_and_can_be_summoned(
    tmp_path: Path,
) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:

        def denied(one: ToyOrder, lines: list[Any]) -> list[Any]:
            del stage.scheduler.orders[one.identifier]
            stage.scheduler.refusing = {"code": "busy", "message": "no place", "status": 503}
            return [*lines[:3], None]

        entry.tamper = denied
        with pytest.raises(OrderStalled, match="denies an order that it admitted"):
            await asked(stage)
        record = stage.session.journal.all()[0]
        assert record.phase is Phase.ADMITTED
        assert record.paid is None


async def test_a_node_that_signs_other_tokens_than_it_stands_for_is_told(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:

        def changed(one: ToyOrder, lines: list[Any]) -> list[Any]:
            other = one.tokens[0] - 1
            return [lines[0], {"type": "token", "position": 0, "id": other}, said(one, [other]), *lines[3:]]

        entry.tamper = changed
        with pytest.raises(AnswerChanged):
            await asked(stage)


def undrawn(_one: ToyOrder, _lines: list[Any]) -> list[Any]:
    return [{"type": "undrawn"}, {"type": "end"}]


def friends(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [{"type": "checking", "segments": [[ENTRY] * 3]}, *lines[1:]]


def no_verdicts(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["type"] != "verdicts"]


@pytest.mark.parametrize("tamper", [undrawn, friends, no_verdicts, silent, garbage])
async def test_a_check_that_an_entry_keeps_back_comes_from_the_scheduler(
    tmp_path: Path, tamper: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "troth.client.orders.checking")
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:
        entry.tamper_check = tamper
        await one_answer(stage, entry, blamed=False)
        assert "scheduler" in caplog.text
        assert {"secret", "tiles"} <= set(stage.scheduler.calls_of)


async def test_openings_that_an_entry_keeps_back_come_from_the_scheduler(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage, toy_entry(stage) as entry:
        entry.openings = False
        await one_answer(stage, entry, blamed=False)
        assert "secret" not in stage.scheduler.calls_of
        assert "tiles" in stage.scheduler.calls_of


async def test_direct_mode_needs_one_node_for_all_layers(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, ends=(1, 2)) as stage, toy_entry(stage):
        with pytest.raises(ModelUnavailable, match="splits the model"):
            await asked(stage)
