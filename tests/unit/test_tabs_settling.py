"""How orders are settled where the disk is full, the chain is away, a leaf fell in court, or the tab closes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.toy_market import PARAMETERS
from support.toy_tab_stage import toy_stage
from support.waiting import eventually
from unit.test_tabs_asking import SELDOM, asked, ended

from troth.client.orders.checking import _why_unclear
from troth.client.orders.errands import Errands
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper, unheard
from troth.client.orders.resuming import Resumer
from troth.client.orders.updates import OrderOutcome
from troth.client.tabs import managing
from troth.client.tabs.errors import NoTab, StoreUnusable
from troth.protocol.market import tabs
from troth.protocol.market.signed import Opinion
from troth.protocol.market.tabs import ROOM, WINDOW


async def test_a_full_disk_sends_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await stage.session.ready()
        execute = stage.store.execute

        def full(statement: str, *values: object) -> list[Any]:
            if statement.startswith("INSERT INTO orders"):
                raise StoreUnusable("The file of tabs cannot be read or written: disk is full", "", "Free disk space.")
            return execute(statement, *values)

        stage.store.execute = full  # type: ignore[method-assign]
        with pytest.raises(StoreUnusable, match="disk is full"):
            await asked(stage)
        stage.store.execute = execute  # type: ignore[method-assign]
        assert stage.book().sequence == 0
        assert "order" not in stage.scheduler.calls_of
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def test_the_keeper_goes_on_after_any_failure(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        again: Callable[..., Awaitable[None]] = OrderKeeper.once
        failures = [StoreUnusable("full", "", ""), TimeoutError()]

        async def failing(self: OrderKeeper) -> None:
            if failures:
                stage.session.changed.set()
                raise failures.pop()
            await again(self)

        keeper = OrderKeeper(stage.session)
        keeper.once = lambda: failing(keeper)  # type: ignore[method-assign]
        async with keeper:
            await eventually(lambda: stage.session.books.record(stage.tab).delivered)
        assert stage.session.books.record(stage.tab).delivered


async def test_a_leaf_that_fell_in_court_is_paid_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        while ended(await asked(stage, SELDOM)).outcome is not OrderOutcome.UNDRAWN:
            continue
        entry = stage.session.journal.all()[0]
        spent, state = stage.book().spent, stage.world.state
        stage.world.state = replace(state, voided=state.voided.set((entry.identifier, 0), entry.identifier))
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        assert stage.session.journal.entry(entry.identifier).paid == 0
        assert stage.book().spent == spent


async def test_a_closing_tab_takes_no_order_and_pays_what_runs(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        while ended(await asked(stage, SELDOM)).outcome is not OrderOutcome.UNDRAWN:
            continue
        record = stage.world.state.tabs[stage.tab]
        closing = stage.world.state.tabs.set(stage.tab, replace(record, closes_at=2_000))
        stage.world.state = replace(stage.world.state, tabs=closing)
        with pytest.raises(Exception, match="No tab of this client"):
            await asked(stage)
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        assert not stage.book().bounds
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent


@pytest.mark.slow
async def test_older_numbers_hold_the_window_open_and_are_paid_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where more orders are under way than there is room for.
    monkeypatch.setattr(tabs, "blocking", lambda _book: None)
    async with toy_stage(tmp_path) as stage:
        while ended(await asked(stage, SELDOM)).outcome is not OrderOutcome.UNDRAWN:
            continue
        key = stage.session.keyring.key(stage.session.books.record(stage.tab).tab.key)
        for _ in range(tabs.WINDOW + 2):
            stage.session.books.order(stage.tab, 1, stage.state(), key, lambda number, _voucher: number)
        book = stage.book()
        # Everything after the undrawn one that fits is paid; what would push it out of the window waits.
        for number in sorted(book.bounds)[1 : tabs.WINDOW]:
            stage.session.books.acknowledge(stage.tab, number, 0, key)
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        checked = stage.session.journal.all()[0]
        assert checked.paid is None
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        assert stage.session.journal.entry(checked.identifier).paid == checked.fee


async def test_a_doubted_tab_is_ordered_on_again_once_its_owner_says_so(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        session = stage.session
        (record,) = session.books.all()
        session.books.doubt(record.identifier, "it answered with another voucher")
        assert session.usable() == []
        home, name = session.keyring._home, "0x" + record.identifier.hex()
        shown = managing.trust(home, name[:12], yes=False)
        assert (shown["doubt"], shown["trusted"]) == ("it answered with another voucher", False)
        assert session.usable() == []
        assert managing.trust(home, name[:12], yes=True)["trusted"]
        assert [tab_context.identifier for tab_context in session.usable()] == [record.identifier]
        with pytest.raises(NoTab):
            managing.trust(home, "0xffffffff", yes=True)


async def test_a_tab_with_an_order_that_is_never_settled_takes_no_more_orders(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        session = stage.session
        (record,) = session.books.all()
        book = record.book
        for _ in range(WINDOW - ROOM + 1):
            book, number = tabs.order_next(book, 1, session.state.tab_state(record.identifier))
            if number > 1:
                book = tabs.acknowledge(book, number, 0)
        session.books.all = lambda *_: [replace(record, book=book)]  # type: ignore[method-assign]
        assert session.usable() == []
        said = str(session.no_tab())
        assert "order 1 is not settled, and too many later ones are: `troth client close " in said
        assert "client pay" not in said, "this file does not know the order"


async def test_why_no_tab_can_be_used_is_said_in_words(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        before = stage.world.state
        record, payee = before.tabs[stage.tab], before.tabs[stage.tab].tab.payee
        for changed, exit_block, why in (
            (replace(record, known=False), 0, "the tab is not open yet"),
            (replace(record, closes_at=1153), 0, "the tab is closed, and what is left of it is free from block 1153"),
            (record, 9, "the scheduler has left: `troth client close` brings the money back"),
        ):
            left = before.parties.set(payee, replace(before.parties[payee], exit_block=exit_block))
            stage.world.state = replace(before, tabs=before.tabs.set(stage.tab, changed), parties=left)
            assert stage.session.usable() == []
            assert f"{payee}: {why}" in str(stage.session.no_tab())


async def test_an_order_that_ended_since_it_was_read_is_not_begun_again(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        journal = stage.session.journal
        (entry,) = journal.all()
        stage.store.execute("UPDATE orders SET paid = NULL, held_until = 0")
        journal.step(entry.identifier, Phase.CONTRADICTED, failure="a lie")
        journal.release(entry.identifier)
        read_before = replace(entry, phase=Phase.ANSWERED, fee=None, paid=None)
        errands = Errands()
        Resumer(stage.session, errands, unheard).resume(stage.session.books.record(entry.tab), read_before)
        await errands.ended()
        assert journal.entry(entry.identifier).phase is Phase.CONTRADICTED


async def test_who_took_an_order_over_does_not_forget_that_its_scheduler_lied(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        journal = stage.session.journal
        (entry,) = journal.all()
        stage.store.execute("UPDATE orders SET paid = NULL")
        journal.step(entry.identifier, Phase.CONTRADICTED, failure="a lie")
        journal.step(entry.identifier, Phase.ADMITTED)
        assert journal.entry(entry.identifier).phase is Phase.CONTRADICTED


async def test_a_lie_about_an_order_that_the_chain_voided_meanwhile_is_noted(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        journal = stage.session.journal
        (entry,) = journal.all()
        stage.store.execute("UPDATE orders SET paid = '0', phase = ?", Phase.ORDERED)
        journal.step(entry.identifier, Phase.ADMITTED)
        assert journal.entry(entry.identifier).phase is Phase.ORDERED
        journal.step(entry.identifier, Phase.CONTRADICTED, failure="a lie")
        assert (journal.entry(entry.identifier).phase, journal.entry(entry.identifier).paid) == (Phase.CONTRADICTED, 0)


def test_why_an_answer_is_unclear_is_said_in_words() -> None:
    def words(*opinions: Opinion) -> Any:
        verdicts = [SimpleNamespace(message=SimpleNamespace(opinion=opinion)) for opinion in opinions]
        return SimpleNamespace(segments=[SimpleNamespace(verdicts=verdicts)])

    shown: Any = object()
    assert "were not shown" in _why_unclear(words(Opinion.ACCEPT), None)
    assert "disagrees with the node's" in _why_unclear(words(Opinion.ACCEPT, Opinion.ACCEPT), shown)
    for other in (Opinion.REJECT, Opinion.CANNOT_TELL):
        assert "no majority" in _why_unclear(words(Opinion.ACCEPT, other), shown)
