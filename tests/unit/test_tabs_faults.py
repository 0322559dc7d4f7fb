"""What goes wrong without anybody lying: kills at each step, backups, two processes, dead schedulers, full disks."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.toy_market import PARAMETERS
from support.toy_tab_scheduler import ToyOrder, honest
from support.toy_tab_stage import Stage, toy_stage
from support.waiting import eventually
from unit.test_tabs_asking import ALWAYS, PROMPT, SELDOM, asked, ended, text_of

from troth.client.choices import SamplingChoices
from troth.client.orders.asking import ask
from troth.client.orders.course import ADMISSION_SECONDS, OLD_DRAWS
from troth.client.orders.failing import OrderStalled
from troth.client.orders.journal import OrderJournal, OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.session import PayerSession
from troth.client.orders.updates import OrderOutcome, SentUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.client.tabs import managing
from troth.client.tabs.errors import NoTab, StoreUnusable, TabBehind, TabShort
from troth.client.tabs.recovery import recover
from troth.protocol.market import tabs
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.tabs import ROOM, WINDOW


class Killed(BaseException):
    """What no program catches: the process is gone at this place."""


def killing(journal: OrderJournal, phase: Phase, *, before: bool) -> None:
    """The process dies before or after this phase is written down."""
    step = journal.step

    def dying(identifier: Any, to: Phase | None = None, **more: Any) -> None:
        if to is phase and before:
            raise Killed
        step(identifier, to, **more)
        if to is phase:
            raise Killed

    journal.step = dying  # type: ignore[method-assign]


PHASES = (Phase.ADMITTED, Phase.ANSWERED, Phase.DRAWN_OVER, Phase.REVEALED, Phase.JUDGED, Phase.OPENING, Phase.CHECKED)


async def restarted(stage: Stage, rounds: int = 1) -> PayerSession:
    """Another process finds the files as they are, and does what is due."""
    session, store = stage.another()
    stage.store.close()
    stage.store, stage.session = store, session
    # The dead process's lease is over.
    store.execute("UPDATE orders SET held_until = 0")
    for _ in range(rounds):
        await OrderKeeper(session).once()
    return session


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("phase", PHASES)
async def test_killed_at_any_step_the_order_ends_paid_exactly_once(phase: Phase, before: bool, tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        killing(stage.session.journal, phase, before=before)
        with pytest.raises(Killed):
            await asked(stage)
        session = await restarted(stage)
        (entry,) = session.journal.all()
        assert entry.phase is Phase.CHECKED
        assert entry.paid == entry.fee == stage.book().spent
        assert not stage.book().bounds
        assert stage.scheduler.checks == 1
        await OrderKeeper(session).once()
        assert stage.scheduler.books[stage.tab].payable == entry.fee
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def test_killed_between_payment_and_delivery_the_word_is_delivered(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        assert not stage.session.books.record(stage.tab).delivered
        await restarted(stage)
        assert stage.session.books.record(stage.tab).delivered
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent


async def test_killed_before_it_was_sent_the_number_costs_nothing(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        asking = ask(stage.session, PROMPT, ALWAYS)
        assert isinstance(await anext(asking), SentUpdate)
        await asking.aclose()
        # Nobody knows whether it was: it is found out by the block after which nobody may admit it.
        stage.world.block += PARAMETERS.reference_age + DRAW_AGE
        session = await restarted(stage)
        (entry,) = session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.FAILED, 0)
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def test_a_process_that_lives_keeps_its_order(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        asking = ask(stage.session, PROMPT, ALWAYS)
        await anext(asking)
        other, store = stage.another()
        await OrderKeeper(other).once()
        assert other.journal.all()[0].phase is Phase.ORDERED
        store.close()
        await asking.aclose()


async def test_down_until_after_the_windows_an_old_draw_is_no_lie_and_not_acknowledged(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        killing(stage.session.journal, Phase.DRAWN_OVER, before=True)
        with pytest.raises(Killed):
            await asked(stage)
        stage.world.block += PARAMETERS.lag + 1
        session = await restarted(stage, rounds=2)
        (entry,) = session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.REFUSED_CHECK, None)
        assert not session.books.record(stage.tab).doubt
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def with_an_old_draw(stage: Stage) -> OrderRecord:
    """The order of a client that reads its draw some blocks after it was made."""

    def slow(_one: ToyOrder, lines: list[Any]) -> list[Any]:
        stage.world.block += DRAW_AGE + 1
        return lines

    stage.scheduler.tamper = slow
    with pytest.raises(OrderStalled, match="too old"):
        await asked(stage)
    stage.scheduler.tamper = honest
    (entry,) = stage.session.journal.all()
    assert (entry.phase, entry.paid) == (Phase.ANSWERED, None)
    return entry


async def test_an_old_draw_is_asked_for_again_and_a_fresh_one_decides(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        entry = await with_an_old_draw(stage)
        placed = stage.scheduler.orders[entry.identifier]
        placed.draw, _ = stage.scheduler.drawn(entry.identifier, placed.given)
        placed.lines = stage.scheduler.honest_lines(placed)
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.CHECKED, entry.fee)
        assert not stage.session.books.record(stage.tab).doubt


async def test_who_keeps_drawing_with_old_blocks_is_not_believed(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        entry = await with_an_old_draw(stage)
        for left in reversed(range(OLD_DRAWS - 1)):
            # Asked again at the same block it says nothing more.
            for _ in range(2):
                await OrderKeeper(stage.session).once()
            stage.world.block += 1
            await OrderKeeper(stage.session).once()
            entry = stage.session.journal.entry(entry.identifier)
            assert entry.phase is (Phase.ANSWERED if left else Phase.CONTRADICTED)
        assert (entry.paid, stage.book().spent) == (None, 0)
        assert stage.session.books.record(stage.tab).doubt


async def test_down_until_after_the_windows_an_unseen_draw_is_paid_undrawn(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        killing(stage.session.journal, Phase.REVEALED, before=True)
        with pytest.raises(Killed):
            await asked(stage)
        stage.world.block += PARAMETERS.lag
        session = await restarted(stage, rounds=2)
        (entry,) = session.journal.all()
        assert entry.phase is Phase.UNDRAWN
        assert entry.paid == entry.fee
        assert stage.scheduler.orders[entry.identifier].secret is None


# ------------------------------------------------------------------------------------------------------------- backups


def backed_up(stage: Stage, folder: Path) -> Path:
    """A copy of the file as a backup program makes it."""
    source = sqlite3.connect(stage.home.tabs)
    target = sqlite3.connect(folder / "backup.sqlite3")
    source.backup(target)
    source.close()
    target.close()
    return folder / "backup.sqlite3"


async def restored(stage: Stage, backup: Path) -> PayerSession:
    stage.store.close()
    for suffix in ("-wal", "-shm"):
        stage.home.tabs.with_name(stage.home.tabs.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, stage.home.tabs)
    stage.session, stage.store = stage.another()
    return stage.session


async def test_a_wallet_from_an_old_backup_goes_on_and_never_pays_twice(tmp_path: Path) -> None:
    async with toy_stage(tmp_path / "home") as stage:
        await asked(stage)
        backup = backed_up(stage, tmp_path)
        for wish in (ALWAYS, ALWAYS, SELDOM, SELDOM):
            await asked(stage, wish)
        await OrderKeeper(stage.session).once()
        before, known = stage.book(), stage.scheduler.books[stage.tab].best
        session = await restored(stage, backup)
        assert stage.book().sequence < before.sequence
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        after = stage.book()
        assert after.sequence == before.sequence + 1
        assert after.spent > before.spent
        assert set(after.bounds) == set(before.bounds)
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(session).once()
        book = stage.scheduler.books[stage.tab]
        fees = {one.order.sequence: one for one in stage.scheduler.orders.values()}
        assert len(fees) == after.sequence
        assert (book.exposure, book.payable) == (0, stage.book().spent)
        assert book.best.spent > known.spent
        assert stage.world.redeem(stage.tab, known.spent) + stage.world.redeem(stage.tab, book.payable) == book.payable


async def test_words_that_say_less_are_not_taken_over(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        await OrderKeeper(stage.session).once()
        old = stage.scheduler.vouchers[stage.tab]
        await asked(stage)
        stage.scheduler.vouchers[stage.tab] = old
        book = stage.book()
        assert not await recover(stage.session, stage.session.usable()[0])
        assert stage.book() == book


async def test_what_the_chain_paid_and_nobody_shows_forbids_to_order(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.world.redeem(stage.tab, 5_000)
        with pytest.raises(TabBehind, match="The chain has paid 5000"):
            await asked(stage)
        assert stage.book().sequence == 0


async def test_a_forged_word_is_not_taken_over(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        word = stage.scheduler.vouchers[stage.tab]
        forged = replace(word.message, spent=9_000, authorised=9_000)
        stage.scheduler.vouchers[stage.tab] = replace(word, message=forged)
        session, store = stage.another()
        with pytest.raises(Exception, match="was signed by"):
            await recover(session, session.usable()[0])
        assert stage.book().spent < 9_000
        store.close()


# ----------------------------------------------------------------------------------------- many at once, two processes


async def test_one_tab_serves_many_requests_of_two_processes_at_once(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        other, store = stage.another()
        sessions = [stage.session, other]

        async def one(number: int) -> list[Any]:
            return [update async for update in ask(sessions[number % 2], PROMPT, ALWAYS)]

        answers = await asyncio.gather(*(one(number) for number in range(12)))
        assert all(text_of(answer) == "hello world" for answer in answers)
        numbers = sorted(entry.sequence for entry in other.journal.all())
        assert numbers == list(range(1, len(numbers) + 1))
        assert len({entry.sequence for entry in other.journal.all()}) == len(numbers) >= 12
        await OrderKeeper(other).once()
        assert stage.book().spent == sum(ended(answer).fee for answer in answers)
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent
        store.close()


GIVING = """
import sys
from pathlib import Path
from troth.chain.keystore import Key
from troth.client.tabs.books import TabBooks
from troth.client.tabs.store import TabStore
from troth.protocol.market.types import TabState

store = TabStore(Path(sys.argv[1]))
(record,) = TabBooks(store).all()
state = TabState(balance=10**9, known=True)
key = Key.from_secret(bytes.fromhex(sys.argv[2]))
for _ in range(40):
    number = TabBooks(store).order(record.identifier, 5, state, key, lambda number, _voucher: number)
    print(number)
    if number % 3 == 0:
        TabBooks(store).acknowledge(record.identifier, number, 2, key)
"""


async def test_two_processes_give_no_number_out_twice(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        record = stage.session.books.record(stage.tab)
        key = stage.session.keyring.key(record.tab.key)
        command = [sys.executable, "-c", GIVING, str(stage.home.tabs), key.secret.hex()]
        running = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(2)]
        said = [(await one.communicate())[0].split() for one in running]
        assert sorted(int(number) for numbers in said for number in numbers) == list(range(1, 81))
        book = stage.book()
        assert (book.sequence, book.spent, len(book.bounds)) == (80, 2 * 26, 80 - 26)
        payee = tabs.PayeeBook(tabs.first_voucher(stage.tab))
        for word in stage.session.books.vouchers(stage.tab):
            payee = tabs.accept(payee, word.message)


async def test_the_tab_covers_no_more_than_it_holds(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, deposit=250) as stage:
        await asked(stage, replace(ALWAYS, choices=SamplingChoices(16)))
        with pytest.raises(TabShort) as caught:
            await asked(stage, replace(ALWAYS, choices=SamplingChoices(200)))
        assert caught.value.shortfall > 0
        assert f"top-up 0x{stage.tab.hex()[:10]}" in caught.value.remedy
        record = stage.session.books.record(stage.tab)
        assert record.book.authorised <= 250


# --------------------------------------------------------------------------------------------------------- fail-over


async def test_a_dead_scheduler_costs_the_next_question_less_than_five_seconds(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        await asked(stage)
        assert len(first.served) == 1
        dead = httpx.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False)
        stage.clients[first.key.address] = dead
        for desk in stage.session.desks.values():
            desk.calls = None
        begun = time.monotonic()
        assert text_of(await asked(stage)) == "hello world"
        assert time.monotonic() - begun < 5
        assert len(second.served) == 1
        await dead.aclose()


async def test_a_scheduler_that_stalls_before_the_first_word_is_left_within_five_seconds(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        first.tamper = lambda _one, _lines: [None]
        begun = time.monotonic()
        updates = await asked(stage)
        assert time.monotonic() - begun < ADMISSION_SECONDS + 1
        assert [update.again for update in updates if isinstance(update, SentUpdate)] == [False, True]
        assert len(second.served) == 1
        first.tamper = lambda _one, lines: lines
        begun = time.monotonic()
        await asked(stage)
        assert len(second.served) == 2


async def test_an_answer_that_breaks_off_is_continued_at_the_second_tab(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        first.tamper = lambda _one, lines: lines[:6]
        updates = await asked(stage)
        assert text_of(updates) == "hello world"
        (one,) = second.orders.values()
        assert one.request.prompt_tokens == (*PROMPT, *first.answer[:5])
        assert one.request.max_tokens == 64 - 5
        assert ended(updates).outcome is OrderOutcome.CHECKED
        assert ended(updates).fee == stage.book(1).spent
        assert stage.book(0).spent == 0


async def test_what_broke_off_is_not_paid_and_what_it_may_cost_counts(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, _ = stage.schedulers
        first.tamper = lambda _one, lines: lines[:6]
        offer = await stage.session.ready()
        assert offer
        updates = await asked(stage)
        most = next(update.most for update in updates if isinstance(update, SentUpdate))
        limited = Wish(SamplingChoices(64, max_cost=most + 1), CheckWish("lot", 1_000_000))
        for desk in stage.session.desks.values():
            desk.away_until = 0.0
        with pytest.raises(Exception, match="--max-cost"):
            await asked(stage, limited)


async def test_a_single_tab_is_asked_again_after_a_broken_stream(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        broken: list[int] = []

        def once(_one: ToyOrder, lines: list[Any]) -> list[Any]:
            if broken:
                return lines
            broken.append(1)
            return lines[:6]

        stage.scheduler.tamper = once
        assert text_of(await asked(stage)) == "hello world"
        assert [entry.phase for entry in stage.session.journal.all()].count(Phase.CHECKED) == 1


async def test_a_scheduler_that_is_away_when_it_is_asked_again_may_have_the_order_all_the_same(tmp_path: Path) -> None:
    """Its number must not be acknowledged with nothing: that word, and every later one, would be refused."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper = lambda _one, _lines: []
        with pytest.raises(OrderStalled):
            await asked(stage)
        stage.scheduler.tamper = lambda _one, lines: lines
        alive = stage.clients[stage.scheduler.key.address]
        dead = httpx.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False)
        stage.clients[stage.scheduler.key.address] = dead
        session = await restarted(stage)
        assert {entry.phase for entry in session.journal.all()} == {Phase.ORDERED}
        stage.clients[stage.scheduler.key.address] = alive
        for one in stage.scheduler.orders.values():
            one.lines = stage.scheduler.honest_lines(one)
        session = await restarted(stage)
        assert {entry.phase for entry in session.journal.all()} == {Phase.CHECKED}
        await OrderKeeper(session).once()
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent > 0
        await dead.aclose()


# ------------------------------------------------------------------------------------------------------- disk and chain


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
        stage.world.state = replace(state, voided=state.voided.with_item((entry.identifier, 0), entry.identifier))
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        assert stage.session.journal.entry(entry.identifier).paid == 0
        assert stage.book().spent == spent


async def test_a_closing_tab_takes_no_order_and_pays_what_runs(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        while ended(await asked(stage, SELDOM)).outcome is not OrderOutcome.UNDRAWN:
            continue
        record = stage.world.state.tabs[stage.tab]
        closing = stage.world.state.tabs.with_item(stage.tab, replace(record, closes_at=2_000))
        stage.world.state = replace(stage.world.state, tabs=closing)
        with pytest.raises(Exception, match="No tab of this client"):
            await asked(stage)
        stage.world.block += PARAMETERS.lag
        await OrderKeeper(stage.session).once()
        assert not stage.book().bounds
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent


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
        assert [desk.identifier for desk in session.usable()] == [record.identifier]
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
        assert "order 1 is not settled; close it" in str(session.no_tab())


async def test_an_order_that_ended_since_it_was_read_is_not_begun_again(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        journal = stage.session.journal
        (entry,) = journal.all()
        stage.store.execute("UPDATE orders SET paid = NULL, held_until = 0")
        journal.step(entry.identifier, Phase.CONTRADICTED, failure="a lie")
        journal.release(entry.identifier)
        read_before = replace(entry, phase=Phase.ANSWERED, fee=None, paid=None)
        await OrderKeeper(stage.session)._look_after(stage.session.desk_of(entry.tab), read_before)
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
