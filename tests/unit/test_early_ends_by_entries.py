"""Early ends heard by way of a node that adds tokens which nobody signed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.toy_entry import toy_entry
from support.toy_market import NODE_KEYS
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import toy_stage
from unit.test_early_ends import ask_whole, held_open
from unit.test_tabs_asking import ALWAYS, PROMPT, text_of

from troth.client.orders.asking import ask
from troth.client.orders.updates import FinishedUpdate


@pytest.mark.parametrize("results_hold", [True, False])
async def test_an_entry_adds_nothing_to_an_answer_that_ends_early(tmp_path: Path, results_hold: bool) -> None:
    """What came beyond the result is no part of the answer: it is not shown, and nothing that was shown is shown anew
    where the entry's results are wrong."""
    async with toy_stage(tmp_path) as stage, toy_entry(stage, nodes=tuple(NODE_KEYS)) as entry:
        scheduler = stage.scheduler
        await ask_whole(stage)
        scheduler.writes, scheduler.tamper = 5, held_open(scheduler)

        def adding(_one: ToyOrder, lines: list[Any]) -> list[Any]:
            more = [{"type": "token", "position": place, "id": scheduler.answer[0]} for place in range(5, 9)]
            results = lines[-2] if results_hold else lines[-2] | {"reason": "end"}
            return [*lines[:-3], *more, scheduler.ended, results, lines[-1]]

        entry.tamper = adding
        ending, updates = asyncio.Event(), []
        async for update in ask(stage.session, PROMPT, ALWAYS, ending=ending):
            updates.append(update)
            if text_of(updates) == "hello":
                ending.set()
        assert text_of(updates) == "hello"
        assert next(one for one in updates if isinstance(one, FinishedUpdate)).tokens == 5
        assert len(stage.session.journal.all()[0].tokens) == 5
