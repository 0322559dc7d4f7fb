"""An early end at the moments at which it could tear something: before the first token, with the last, after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.tab_scene import TabScene, history_of, view_of
from support.toy_tab_scheduler import tokens_of
from support.toy_tab_stage import toy_stage
from unit.test_early_ends import end_of, held_open
from unit.test_scheduler_orders import journey_of
from unit.test_tabs_asking import ALWAYS, PROMPT, text_of

from troth.client.orders.asking import ask
from troth.client.orders.updates import FinishedUpdate
from troth.protocol.market.life import live
from troth.scheduler.orders.pipeline import PipelineRun


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize(("after", "least", "most"), [(0, 1, 1), (1, 1, 6), (6, 6, 6)])
async def test_an_early_end_leaves_an_answer_that_is_signed_checked_and_paid(
    scene: TabScene, after: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``after`` so many of six tokens. There is one at least, one answer of a node comes whole, and the end stays."""
    run, hand_out = PipelineRun.run, PipelineRun._hand_out

    def ending(self: PipelineRun) -> None:
        if len(self.tokens) >= after:
            self.no_more.set()

    async def runs(self: PipelineRun) -> Any:
        ending(self)
        return await run(self)

    def hands_out(self: PipelineRun, *given: Any) -> None:
        hand_out(self, *given)
        ending(self)

    monkeypatch.setattr(PipelineRun, "run", runs)
    monkeypatch.setattr(PipelineRun, "_hand_out", hands_out)
    asked = await scene.send(scene.asked(max_tokens=6, may_end_early=True))
    result = history_of(scene, asked).answered.results[-1].message
    assert least <= len(asked.tokens) == result.written <= most
    live(journey_of(scene, asked), view_of(scene, asked))
    assert (await scene.show(asked))[-1]["complete"]


async def test_an_end_that_comes_while_the_check_is_drawn_changes_nothing(scene: TabScene) -> None:
    asked = await scene.send(scene.asked(max_tokens=6, may_end_early=True))
    before = history_of(scene, asked).answered.results
    for _ in range(3):
        assert (await end_of(scene, asked.order_id, asked.submission.salt)).status_code == 200
    assert (await scene.show(asked))[-1]["complete"]
    assert (await end_of(scene, asked.order_id, asked.submission.salt)).status_code == 200
    assert history_of(scene, asked).answered.results == before


@pytest.mark.parametrize(
    ("cut", "shown"), [(2, "h\N{REPLACEMENT CHARACTER}"), (4, "h\N{REPLACEMENT CHARACTER}"), (5, "h\N{GRINNING FACE}")]
)
async def test_an_early_end_within_a_character_shows_that_one_is_missing(tmp_path: Path, cut: int, shown: str) -> None:
    """Every byte of it is a token, and is paid."""
    async with toy_stage(tmp_path) as stage:
        scheduler = stage.scheduler
        scheduler.answer = tokens_of("h\N{GRINNING FACE}!")
        scheduler.writes, scheduler.tamper = cut, held_open(scheduler)
        ending, updates = asyncio.Event(), []
        async for update in ask(stage.session, PROMPT, ALWAYS, ending=ending):
            updates.append(update)
            ending.set()
        assert text_of(updates) == shown
        assert next(one for one in updates if isinstance(one, FinishedUpdate)).tokens == cut
        assert stage.session.journal.all()[0].paid == stage.session.journal.all()[0].fee
