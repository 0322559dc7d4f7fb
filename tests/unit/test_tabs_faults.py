"""kill -9 of a client at every step of an order, and wallets from old backups: each order is paid exactly once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.toy_market import DOMAIN, PARAMETERS
from support.toy_tab_scheduler import ToyOrder, honest
from support.toy_tab_stage import Stage, restarted, toy_stage
from unit.test_tabs_asking import ALWAYS, PROMPT, SELDOM, asked, ended

from troth.client.errors import ReceiptNotFound, SchedulerRefused, SchedulerUnreachable
from troth.client.orders import checking, terminal
from troth.client.orders.asking import ask
from troth.client.orders.calls import MarketCalls
from troth.client.orders.course import OLD_DRAWS
from troth.client.orders.failing import OrderFailed, OrderStalled, OrderUnseen, unknown_until
from troth.client.orders.journal import OrderJournal, OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.receipts import shown
from troth.client.orders.running import Running
from troth.client.orders.session import PayerSession
from troth.client.orders.updates import OrderOutcome, SentUpdate
from troth.client.tabs.errors import NoTab, TabBehind
from troth.client.tabs.recovery import recover
from troth.protocol.amounts import Asset
from troth.protocol.market import messages, tabs
from troth.protocol.market.bodies import Admitted
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.messages import sign
from troth.protocol.market.signed import Admission
from troth.protocol.market.types import NO_ADDRESS
from troth.protocol.types import Hash32


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


@pytest.mark.parametrize("away", [True, False])
async def test_a_scheduler_that_starts_again_is_asked_for_its_openings_once_more(
    away: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has them on disk: what all accepted ends checked. One that is there and shows none is not waited for."""
    monkeypatch.setattr(checking, "OPENING_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(checking, "RESTART_PAUSES", (0.01, 0.01))
    tiles, asked_for = MarketCalls.tiles, []

    async def restarting(self: MarketCalls, *arguments: Any) -> Any:
        asked_for.append(arguments)
        if len(asked_for) < 4:
            error = SchedulerUnreachable if away else SchedulerRefused
            raise error("The scheduler shows no openings", "a test", "Ask again.")
        return await tiles(self, *arguments)

    monkeypatch.setattr(MarketCalls, "tiles", restarting)
    async with toy_stage(tmp_path) as stage:
        outcome = ended(await asked(stage)).outcome
        assert outcome is (OrderOutcome.CHECKED if away else OrderOutcome.UNCLEAR)
        assert len(asked_for) == (4 if away else 2)


@pytest.mark.parametrize("times", [2, 99])
async def test_a_scheduler_that_starts_again_under_a_check_is_asked_once_more(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer ends checked; where nobody comes back it is not said to be refused, and a later round checks it."""
    monkeypatch.setattr(checking, "RESTART_PAUSES", (0.01, 0.01))
    show, asked_for = MarketCalls.show, []

    async def restarting(self: MarketCalls, *arguments: Any) -> Any:
        asked_for.append(arguments)
        if len(asked_for) <= times:
            raise SchedulerUnreachable("Nobody answers", "a test", "Ask again.")
        async with aclosing(show(self, *arguments)) as lines:
            async for line in lines:
                yield line

    monkeypatch.setattr(MarketCalls, "show", restarting)
    async with toy_stage(tmp_path) as stage:
        told = ended(await asked(stage))
        assert len(asked_for) == 3
        if times == 2:
            assert told.outcome is OrderOutcome.CHECKED
            return
        assert told.outcome is OrderOutcome.UNCHECKED
        assert "Once the scheduler is back" in told.advice
        (entry,) = stage.session.journal.all()
        assert (entry.paid, stage.book().spent) == (None, 0)
        assert shown(entry, stage.world.state).lines(Asset(NO_ADDRESS, "usdc", 6))[0].endswith(" not due")
        asked_for[:] = [()] * times
        await OrderKeeper(stage.session).once()
        (entry,) = stage.session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.CHECKED, entry.fee)


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


async def test_an_answer_that_can_be_checked_no_more_is_paid_by_hand_and_its_tab_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing pays it by itself, and an open number keeps the tab from going on once enough later ones are paid."""
    async with toy_stage(tmp_path) as stage:
        killing(stage.session.journal, Phase.DRAWN_OVER, before=True)
        with pytest.raises(Killed):
            await asked(stage)
        stage.world.block += PARAMETERS.lag + 1
        session = await restarted(stage, rounds=2)
        (entry,) = session.journal.all()
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        before = stage.book().spent
        monkeypatch.setattr(tabs, "ROOM", tabs.WINDOW - 1)
        with pytest.raises(NoTab, match=f"troth client pay {entry.name[:12]}"):
            await asked(stage)
        for yes in (False, True):
            (told,) = await paid_by_hand(stage, monkeypatch, entry.name, yes=yes)
            assert (told["paid"], stage.book().spent - before) == (yes, entry.fee if yes else 0)
        assert stage.scheduler.books[stage.tab].payable == stage.book().spent, "its scheduler was told"
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
        with pytest.raises(ReceiptNotFound, match="Only an answer that ended without its check"):
            await paid_by_hand(stage, monkeypatch, entry.name, yes=True)


async def test_an_answer_that_may_still_be_checked_is_not_paid_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.tamper_check = lambda _one, lines: lines[:1]
        assert ended(await asked(stage)).outcome is OrderOutcome.REFUSED_CHECK
        (entry,) = stage.session.journal.all()
        with pytest.raises(ReceiptNotFound, match="may still be checked, until block"):
            await paid_by_hand(stage, monkeypatch, entry.name, yes=True)
        assert stage.book().spent == 0


async def paid_by_hand(stage: Stage, monkeypatch: pytest.MonkeyPatch, order: str, *, yes: bool) -> list[dict[str, Any]]:
    """`troth client pay`."""
    asset = Asset(NO_ADDRESS, "usdc", 6)

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Running]:
        yield Running(stage.session, asset, OrderKeeper(stage.session))

    monkeypatch.setattr(terminal, "running", opened)
    unused: Any = None
    return await terminal.pay_unchecked(unused, unused, None, order, yes=yes)


@pytest.mark.parametrize("phase", [Phase.ORDERED, Phase.ADMITTED, Phase.ANSWERED])
async def test_down_until_its_scheduler_keeps_an_order_no_longer_it_ends_unpaid(phase: Phase, tmp_path: Path) -> None:
    """Not before its results can be summoned no more: a scheduler that denies it until then is asked again."""
    async with toy_stage(tmp_path) as stage:
        identifier, last = await cut_off(stage, phase)
        stage.scheduler.forgotten[identifier] = []
        stage.world.block = last
        session = await restarted(stage, rounds=2)
        assert session.journal.entry(identifier).phase is phase
        stage.world.block += 1
        session = await restarted(stage)
        entry = session.journal.entry(identifier)
        assert (entry.phase, entry.paid) == (Phase.REFUSED_CHECK, None)
        assert entry.failure == "asked for after its scheduler had to keep it: nothing is acknowledged for it"
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


@pytest.mark.parametrize("phase", [Phase.ORDERED, Phase.ADMITTED])
async def test_of_a_forgotten_order_is_still_said_that_it_failed(phase: Phase, tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        identifier, last = await cut_off(stage, phase)
        failed = {"type": "failed", "code": "node_failed", "message": "it broke", "remedy": ""}
        stage.scheduler.forgotten[identifier] = [failed]
        stage.world.block = last + 1
        session = await restarted(stage)
        entry = session.journal.entry(identifier)
        assert (entry.phase, entry.paid) == (Phase.FAILED, 0)


async def cut_off(stage: Stage, phase: Phase) -> tuple[Hash32, int]:
    """An order of a client that died in this phase, and the last block at which its scheduler must know it."""
    if phase is Phase.ORDERED:
        asking = ask(stage.session, PROMPT, ALWAYS)
        assert isinstance(await anext(asking), SentUpdate)
        await asking.aclose()
    else:
        killing(stage.session.journal, phase, before=False)
        with pytest.raises(Killed):
            await asked(stage)
    (entry,) = stage.session.journal.all()
    admitted = entry.read("admitted", Admitted)
    if admitted is not None:
        return entry.identifier, admitted.admission.message.block_number + PARAMETERS.lag
    assert entry.submission is not None
    return entry.identifier, unknown_until(entry.submission.order.message, PARAMETERS) + PARAMETERS.lag


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


@pytest.mark.parametrize("ahead", ["admitted", "draw"])
async def test_a_client_whose_chain_node_is_slow_calls_no_scheduler_a_liar(ahead: str, tmp_path: Path) -> None:
    """The scheduler has seen two blocks more: once this client has seen them, the order goes on and is paid."""
    async with toy_stage(tmp_path) as stage:

        def two_blocks_more(one: ToyOrder, lines: list[Any]) -> list[Any]:
            seen = stage.world.block + 2
            if ahead == "admitted":
                named = Admission(one.identifier, messages.nodes_hash(one.nodes), seen)
                one.admission = sign(named, DOMAIN, stage.scheduler.key.secret)
            one.draw, _ = stage.scheduler.drawn(one.identifier, one.given, seen)
            return stage.scheduler.honest_lines(one)

        stage.scheduler.tamper = two_blocks_more
        with pytest.raises(OrderUnseen, match="chain node is behind"):
            await asked(stage)
        (entry,) = stage.session.journal.all()
        assert (entry.phase, entry.paid) == (Phase.ORDERED if ahead == "admitted" else Phase.ANSWERED, None)
        assert not stage.session.books.record(stage.tab).doubt
        stage.world.block += 2
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


@pytest.mark.slow
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
        (tab_context,) = stage.session.usable()
        assert not await recover(stage.session, tab_context, await stage.session.calls(tab_context))
        assert stage.book() == book


async def test_what_the_chain_paid_and_nobody_shows_forbids_to_order(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.world.redeem(stage.tab, 5_000)
        with pytest.raises(TabBehind, match="The chain has paid 5000"):
            await asked(stage)
        assert stage.book().sequence == 0


async def test_what_a_struck_claim_cost_is_no_payment_that_this_machine_forgot(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        world, record = stage.world, stage.world.state.tabs[stage.tab]
        struck = replace(record, redeemed=record.redeemed + 5_000, forgiven=5_000)
        world.state = replace(world.state, tabs=world.state.tabs.set(stage.tab, struck))
        assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED


async def test_a_forged_word_is_not_taken_over(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        await asked(stage)
        word = stage.scheduler.vouchers[stage.tab]
        forged = replace(word.message, spent=9_000, authorised=9_000)
        stage.scheduler.vouchers[stage.tab] = replace(word, message=forged)
        session, store = stage.another()
        (tab_context,) = session.usable()
        with pytest.raises(Exception, match="was signed by"):
            await recover(session, tab_context, await session.calls(tab_context))
        assert stage.book().spent < 9_000
        store.close()


async def test_who_orders_from_two_copies_of_a_folder_is_told_how_to_end_it(tmp_path: Path) -> None:
    """Each of them has signed other words than the other one; no newer word mends that, and each order is refused."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.refusing = {"code": "voucher_refused", "status": 409, "message": "The voucher pays less"}
        with pytest.raises(OrderFailed, match="pays less") as refused:
            await asked(stage)
        tab = "0x" + stage.session.usable()[0].identifier.hex()
    assert "another copy of this client's folder" in refused.value.remedy
    assert f"`troth client close {tab[:12]} --broadcast`" in refused.value.remedy
