"""A question on tabs: the whole exchange with a scheduler that really signs, over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.byte_language import LANGUAGE
from support.toy_tab_scheduler import PARAMETERS, Stage, toy_stage

from troth.client.choices import Choices
from troth.client.orders.asking import ask
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import Keeper
from troth.client.orders.updates import Drawn, Ended, Finished, Outcome, Served, Signed, Text
from troth.client.orders.wishes import Check, Wish
from troth.protocol.market.prices import MILLION

PROMPT = LANGUAGE.prompt_tokens([{"role": "user", "content": "hello"}])
ALWAYS = Wish(Choices(64), Check("lot", MILLION))
SELDOM = Wish(Choices(64), Check("lot", 1))


async def asked(stage: Stage, wish: Wish = ALWAYS, prompt: tuple[int, ...] = PROMPT) -> list[Any]:
    return [update async for update in ask(stage.session, prompt, wish)]


def text_of(updates: list[Any]) -> str:
    return "".join(update.text for update in updates if isinstance(update, Text))


def ended(updates: list[Any]) -> Ended:
    (found,) = (update for update in updates if isinstance(update, Ended))
    return found


async def test_an_honest_answer_is_drawn_checked_and_paid_at_once(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage)
        kinds = [type(update) for update in updates if not isinstance(update, Text)]
        assert text_of(updates) == "hello world"
        assert kinds[1:] == [Served, Signed, Finished, Drawn, Ended]
        assert ended(updates).outcome is Outcome.CHECKED
        (entry,) = stage.session.journal.all()
        assert entry.phase is Phase.CHECKED
        assert entry.paid == entry.fee == ended(updates).fee == stage.book().spent
        assert not stage.book().bounds
        await Keeper(stage.session).once()
        assert stage.scheduler.books[stage.tab].payable == entry.fee
        assert stage.session.books.record(stage.tab).delivered


async def test_an_undrawn_answer_is_paid_after_the_lag_and_not_before(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        updates = await asked(stage, SELDOM)
        while ended(updates).outcome is Outcome.CHECKED:
            updates = await asked(stage, SELDOM)
        spent = stage.book().spent
        keeper = Keeper(stage.session)
        await keeper.once()
        assert stage.book().spent == spent
        stage.world.block += PARAMETERS.lag
        await keeper.once()
        assert stage.book().spent == spent + ended(updates).fee
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent
