"""A question on tabs: the whole exchange with a scheduler that really signs, over sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.byte_language import LANGUAGE
from support.toy_market import PARAMETERS
from support.toy_tab_stage import Stage, toy_stage
from support.waiting import eventually

from troth.client.choices import SamplingChoices
from troth.client.orders import course, journal
from troth.client.orders.asking import ask
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.updates import (
    DrawnUpdate,
    EndedUpdate,
    FinishedUpdate,
    OrderOutcome,
    ServedUpdate,
    SignedUpdate,
    TextUpdate,
)
from troth.client.orders.wishes import CheckWish, Wish
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.prices import MILLION

PROMPT = LANGUAGE.prompt_tokens([{"role": "user", "content": "hello"}])
ALWAYS = Wish(SamplingChoices(64), CheckWish("lot", MILLION))
SELDOM = Wish(SamplingChoices(64), CheckWish("lot", 1))


async def asked(stage: Stage, wish: Wish = ALWAYS, prompt: tuple[int, ...] = PROMPT) -> list[Any]:
    return [update async for update in ask(stage.session, prompt, wish)]


def text_of(updates: list[Any]) -> str:
    return "".join(update.text for update in updates if isinstance(update, TextUpdate))


def ended(updates: list[Any]) -> EndedUpdate:
    (found,) = (update for update in updates if isinstance(update, EndedUpdate))
    return found


async def test_an_honest_answer_is_drawn_checked_and_paid_at_once(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage)
        kinds = [type(update) for update in updates if not isinstance(update, TextUpdate)]
        assert text_of(updates) == "hello world"
        assert kinds[1:] == [ServedUpdate, SignedUpdate, FinishedUpdate, DrawnUpdate, EndedUpdate]
        assert ended(updates).outcome is OrderOutcome.CHECKED
        (entry,) = stage.session.journal.all()
        assert entry.phase is Phase.CHECKED
        assert entry.paid == entry.fee == ended(updates).fee == stage.book().spent
        assert not stage.book().bounds
        await OrderKeeper(stage.session).once()
        assert stage.scheduler.books[stage.tab].payable == entry.fee
        assert stage.session.books.record(stage.tab).delivered


async def test_an_order_that_is_being_admitted_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scheduler does not know it yet: who asked now would pay nothing for it, and spoil the tab."""
    monkeypatch.setattr(journal, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(course, "LEASE_SECONDS", 0.3)
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.admitting.clear()
        asking = asyncio.create_task(asked(stage))
        await eventually(lambda: "order" in stage.scheduler.calls_of)
        await OrderKeeper(stage.session).once()
        other, store = stage.another()
        # Longer than another process leaves an order to one that shows no sign of life.
        for _ in range(5):
            await asyncio.sleep(0.1)
            await OrderKeeper(other).once()
        assert "again" not in stage.scheduler.calls_of
        stage.scheduler.admitting.set()
        assert ended(await asking).outcome is OrderOutcome.CHECKED
        (entry,) = stage.session.journal.all()
        assert entry.paid == entry.fee == stage.book().spent
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        store.close()


async def test_an_order_that_may_still_arrive_is_not_given_up(tmp_path: Path) -> None:
    """Its reference block proves when it cannot: no clock is asked."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.admitting.clear()
        asking = asyncio.create_task(asked(stage))
        await eventually(lambda: "order" in stage.scheduler.calls_of)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        (entry,) = stage.session.journal.all()
        assert entry.submission is not None
        last = entry.submission.order.message.reference_block + PARAMETERS.reference_age + DRAW_AGE
        for block in (stage.world.block, last):
            stage.world.block = block
            await OrderKeeper(stage.session).once()
            (entry,) = stage.session.journal.all()
            assert (entry.phase, entry.paid) == (Phase.ORDERED, None)
            assert (
                entry.failure == f"its scheduler does not know it: whether it is admitted is unknown until block {last}"
            )
        assert "again" in stage.scheduler.calls_of
        stage.world.block = last + 1
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.FAILED, 0)
        assert entry.failure == f"never admitted: nobody may admit it after block {last}"


async def test_an_order_that_arrives_late_goes_on(tmp_path: Path) -> None:
    """Its voucher paid nothing for it meanwhile, so that none of the tab's words is refused."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.admitting.clear()
        asking = asyncio.create_task(asked(stage))
        await eventually(lambda: "order" in stage.scheduler.calls_of)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        stage.world.block += PARAMETERS.reference_age // 2
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert entry.submission is not None
        stage.scheduler.take(entry.submission)
        stage.scheduler.admitting.set()
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.CHECKED, entry.fee)
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def test_an_undrawn_answer_is_paid_after_the_lag_and_not_before(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage, SELDOM)
        while ended(updates).outcome is OrderOutcome.CHECKED:
            updates = await asked(stage, SELDOM)
        spent = stage.book().spent
        keeper = OrderKeeper(stage.session)
        await keeper.once()
        assert stage.book().spent == spent
        stage.world.block += PARAMETERS.lag
        await keeper.once()
        assert stage.book().spent == spent + ended(updates).fee
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent
