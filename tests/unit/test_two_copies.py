"""Two copies of a client's folder order on one tab at once: each goes on from the other's words, and all is paid once.

Both are long-lived, as gateways are: neither reads what the other one wrote.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.toy_market import PARAMETERS
from support.toy_tab_scheduler import ToyScheduler, honest
from support.toy_tab_stage import Stage, session_on, toy_stage
from unit.test_tabs_asking import ALWAYS, PROMPT, SELDOM, asked, ended

from troth.client.home import Home
from troth.client.orders import building
from troth.client.orders.failing import OrderFailed
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.paying import give_up
from troth.client.orders.session import PayerSession
from troth.client.orders.updates import OrderOutcome
from troth.client.orders.wishes import Wish
from troth.client.tabs.recovery import recover
from troth.protocol.market import tabs
from troth.protocol.market.bodies import OpenOrder, Recovered
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.types import Hash32

SEEDS = range(12)


@dataclass
class Copies:
    """A stage, and the sessions of two copies of its folder."""

    stage: Stage
    sessions: tuple[PayerSession, PayerSession]

    async def ask(self, copy: int, wish: Wish) -> OrderOutcome:
        first, self.stage.session = self.stage.session, self.sessions[copy]
        try:
            outcome: OrderOutcome = ended(await asked(self.stage, wish)).outcome
            return outcome
        finally:
            self.stage.session = first

    def most(self) -> int:
        """What all answers that were served cost."""
        return sum(entry.fee or 0 for entry in self.orders().values())

    def orders(self) -> dict[Hash32, OrderRecord]:
        """The orders that the scheduler took, each as the copy that made it knows it."""
        taken = self.stage.scheduler.orders
        found = [entry for one in self.sessions for entry in one.journal.all() if entry.submission is not None]
        return {entry.identifier: entry for entry in found if entry.identifier in taken}


@asynccontextmanager
async def copies(folder: Path, unpaid: tuple[int, ...] = ()) -> AsyncIterator[Copies]:
    """Copies made after one answer that is paid, and one to ``unpaid`` that is not."""
    async with toy_stage(folder / "one") as stage:
        await asked(stage)
        if unpaid:
            await asked(stage, SELDOM, unpaid)
        shutil.copytree(stage.home.root, folder / "two")
        other, store = session_on(stage.world, Home(folder / "two"), stage.clients)
        try:
            yield Copies(stage, (stage.session, other))
        finally:
            store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_both_go_on_and_every_answer_is_paid_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with copies(tmp_path) as two:
        for _ in range(14):
            copy = chance.randrange(2)
            if chance.random() < 0.25:
                await OrderKeeper(two.sessions[copy]).once()
            else:
                await two.ask(copy, chance.choice((ALWAYS, SELDOM)))
        two.stage.world.block += PARAMETERS.lag
        for _ in range(3):
            for copy in (0, 1):
                await two.ask(copy, ALWAYS)
                await OrderKeeper(two.sessions[copy]).once()
        book = two.stage.scheduler.books[two.stage.tab]
        assert (book.exposure, book.payable) == (0, two.most())
        assert two.stage.world.redeem(two.stage.tab, book.payable) == two.most()


async def test_a_word_that_takes_a_payment_back_is_not_gone_on_from(tmp_path: Path) -> None:
    """A dishonest scheduler keeps the word of the copy that paid less, and shows that one."""
    async with copies(tmp_path) as two:
        first, second = two.sessions
        (other,) = second.usable()
        await two.ask(0, SELDOM)
        less = two.stage.scheduler.vouchers[two.stage.tab]
        oldest = min(first.journal.all(), key=lambda one: one.sequence).submission
        assert oldest is not None
        two.stage.scheduler.books[two.stage.tab] = tabs.PayeeBook(oldest.voucher.message)
        taken = dict(two.stage.scheduler.orders)
        assert await two.ask(1, ALWAYS) is OrderOutcome.CHECKED
        two.stage.scheduler.vouchers[two.stage.tab], two.stage.scheduler.orders = less, taken
        book = second.books.record(two.stage.tab).book
        assert book.spent > less.message.spent
        assert not await recover(second, other, await second.calls(other))
        assert second.books.record(two.stage.tab).book == book


async def test_no_word_of_another_copy_takes_the_number_of_an_order_that_is_on_its_way(tmp_path: Path) -> None:
    async with copies(tmp_path) as two:
        _, second = two.sessions
        (other,) = second.usable()
        await second.open_tab_context(other)
        await two.ask(0, SELDOM)
        offer = await second.open_tab_context(other)
        for _ in range(2):
            building.place(second, other, offer, PROMPT, SELDOM, "question", 0)
        book = second.books.record(two.stage.tab).book
        assert not await recover(second, other, await second.calls(other))
        assert second.books.record(two.stage.tab).book == book


async def test_an_order_whose_number_another_copy_used_is_given_up_without_touching_that_one(tmp_path: Path) -> None:
    async with copies(tmp_path) as two:
        _, second = two.sessions
        (other,) = second.usable()
        offer = await second.open_tab_context(other)
        mine = building.place(second, other, offer, PROMPT, SELDOM, "question", 0)
        await two.ask(0, SELDOM)
        assert await recover(second, other, await second.calls(other))
        assert second.journal.entry(mine.identifier).paid == 0
        before = second.books.record(two.stage.tab).book
        assert mine.sequence in before.bounds
        give_up(second, mine, "refused")
        assert second.books.record(two.stage.tab).book == before


@pytest.mark.parametrize("longer", [False, True], ids=["as much", "more"])
async def test_what_this_copy_paid_alone_is_paid_on_top_of_the_other_one_s_word(tmp_path: Path, longer: bool) -> None:
    """Both know an open order; one pays it, and is not heard, since the other one has ordered meanwhile."""
    prompt = PROMPT * 16 if longer else PROMPT
    async with copies(tmp_path, prompt) as two:
        first, second = two.sessions
        await two.ask(0, ALWAYS)
        two.stage.world.block += PARAMETERS.lag
        await OrderKeeper(second).once()
        (common,) = (one for one in second.journal.all() if one.sequence == 2)
        assert common.paid == common.fee
        assert first.books.record(two.stage.tab).book.bounds.keys() == {2}
        assert await two.ask(1, ALWAYS) is OrderOutcome.CHECKED
        await OrderKeeper(second).once()
        book = two.stage.scheduler.books[two.stage.tab]
        assert (book.exposure, book.payable) == (0, two.most())


def still_runs(scheduler: ToyScheduler, running: list[bool]) -> None:
    """While ``running`` says so, the scheduler knows no results of any order."""
    known = scheduler.known

    def shown(identifier: Hash32) -> Recovered:
        told = known(identifier)
        if not running:
            return told
        return replace(told, orders=tuple(OpenOrder(one.order, one.admission, one.nodes) for one in told.orders))

    scheduler.known = shown  # type: ignore[method-assign]


async def test_an_order_that_ran_when_it_was_taken_over_is_paid_once_its_scheduler_shows_its_draw(
    tmp_path: Path,
) -> None:
    """Its own copy has ended: nobody else would ever pay it."""
    async with copies(tmp_path) as two:
        _, second = two.sessions
        running = [True]
        still_runs(two.stage.scheduler, running)
        await two.ask(0, SELDOM)
        assert await two.ask(1, ALWAYS) is OrderOutcome.CHECKED
        (taken,) = (one for one in second.journal.all() if one.phase is Phase.RECOVERED)
        await OrderKeeper(second).once()
        running.clear()
        for _ in range(2):
            two.stage.world.block += PARAMETERS.lag
            await OrderKeeper(second).once()
        assert second.journal.entry(taken.identifier).paid
        book = two.stage.scheduler.books[two.stage.tab]
        assert (book.exposure, book.payable) == (0, two.most())


async def test_an_order_that_failed_after_it_was_taken_over_is_given_up(tmp_path: Path) -> None:
    async with copies(tmp_path) as two:
        _, second = two.sessions
        still_runs(two.stage.scheduler, [True])
        failed = {"type": "failed", "code": "node_failed", "message": "it broke", "remedy": ""}
        two.stage.scheduler.tamper = lambda _one, lines: [lines[0], failed]
        with pytest.raises(OrderFailed):
            await two.ask(0, SELDOM)
        two.stage.scheduler.tamper = honest
        assert await two.ask(1, ALWAYS) is OrderOutcome.CHECKED
        taken = [one for one in second.journal.all() if one.phase is Phase.RECOVERED]
        assert taken
        two.stage.scheduler.forgotten |= {one.identifier: [failed] for one in taken}
        for blocks in (1, PARAMETERS.reference_age + PARAMETERS.lag + DRAW_AGE):
            assert {second.journal.entry(one.identifier).paid for one in taken} == {None}
            two.stage.world.block += blocks
            await OrderKeeper(second).once()
        assert {second.journal.entry(one.identifier).phase for one in taken} == {Phase.FAILED}
        assert two.stage.scheduler.books[two.stage.tab].exposure == 0
