"""One tab with many requests of two processes at once, and another tab where a scheduler fails."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.toy_market import DOMAIN
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import restarted, toy_stage
from support.waiting import seconds_waited
from unit.test_tabs_asking import ALWAYS, PROMPT, SELDOM, asked, ended, text_of

from troth.client.choices import SamplingChoices
from troth.client.errors import SchedulerUnreachable
from troth.client.orders import course, session
from troth.client.orders.asking import ask
from troth.client.orders.failing import OrderStalled
from troth.client.orders.journal import Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.updates import OrderOutcome, SentUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.client.tabs.errors import TabShort
from troth.protocol.market import canonical, messages, tabs
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.signed import Admission
from troth.protocol.market.types import Voucher


@pytest.mark.slow
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
from troth.protocol.market import canonical
from troth.protocol.market.types import TabState

store = TabStore(Path(sys.argv[1]))
(record,) = TabBooks(store).all()
state = TabState(balance=10**9, known=True)
key = Key.from_secret(bytes.fromhex(sys.argv[2]))
for _ in range(40):
    number, word = TabBooks(store).order(record.identifier, 5, state, key, lambda number, word: (number, word))
    words = [word]
    if number % 3 == 0:
        words.append(TabBooks(store).acknowledge(record.identifier, number, 2, key))
    print(number, *(canonical.encode(one).decode() for one in words), sep="\\t")
"""


@pytest.mark.slow
async def test_two_processes_give_no_number_out_twice(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        record = stage.session.books.record(stage.tab)
        key = stage.session.keyring.key(record.tab.key)
        command = [sys.executable, "-c", GIVING, str(stage.home.tabs), key.secret.hex()]
        running = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(2)]
        said = [line.split(b"\t") for one in running for line in (await one.communicate())[0].splitlines()]
        assert sorted(int(number) for number, *_ in said) == list(range(1, 81))
        book = stage.book()
        assert (book.sequence, book.spent, len(book.bounds)) == (80, 2 * 26, 80 - 26)
        payee = tabs.PayeeBook(tabs.first_voucher(stage.tab))
        words = [canonical.decode(Signed[Voucher], word, 2_000).message for _, *both in said for word in both]
        for word in sorted(words, key=lambda one: (one.sequence, one.spent)):
            payee = tabs.accept(payee, word)
        assert payee.best == book.voucher


async def test_the_tab_covers_no_more_than_it_holds(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, deposit=250) as stage:
        await asked(stage, replace(ALWAYS, choices=SamplingChoices(16)))
        with pytest.raises(TabShort) as caught:
            await asked(stage, replace(ALWAYS, choices=SamplingChoices(200)))
        assert caught.value.shortfall > 0
        assert f"top-up 0x{stage.tab.hex()[:10]}" in caught.value.remedy
        record = stage.session.books.record(stage.tab)
        assert record.book.authorised <= 250


async def test_who_pretends_that_its_client_is_behind_loses_the_question(tmp_path: Path) -> None:
    """It names a block that is not there yet; the order is open, another scheduler answers, and nothing is paid."""
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers

        def ahead(one: ToyOrder, lines: list[Any]) -> list[Any]:
            named = Admission(one.identifier, messages.nodes_hash(one.nodes), stage.world.block + 2)
            one.admission = sign(named, DOMAIN, first.key.secret)
            return first.honest_lines(one)

        first.tamper = ahead
        assert text_of(await asked(stage)) == "hello world"
        assert (len(first.orders), len(second.served)) == (1, 1)
        (left,) = [entry for entry in stage.session.journal.all() if entry.identifier in first.orders]
        assert (left.phase, left.paid) == (Phase.ORDERED, None)


@pytest.mark.slow
async def test_a_dead_scheduler_costs_the_next_question_less_than_five_seconds(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        await asked(stage)
        assert len(first.served) == 1
        dead = httpx.AsyncClient(base_url="http://127.0.0.1:9", trust_env=False)
        stage.clients[first.key.address] = dead
        for tab_context in stage.session.tab_contexts.values():
            tab_context.calls = None
        with seconds_waited() as waited:
            assert text_of(await asked(stage)) == "hello world"
        assert waited() < 5
        assert len(second.served) == 1
        await dead.aclose()


async def test_a_scheduler_that_stalls_before_the_first_word_is_left_within_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eighth of the wait is tried, so that a busy machine has time for the rest."""
    assert course.ADMISSION_SECONDS < 5
    monkeypatch.setattr(course, "ADMISSION_SECONDS", course.ADMISSION_SECONDS / 8)
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        first.tamper = lambda _one, _lines: [None]
        with seconds_waited() as waited:
            updates = await asked(stage)
        assert waited() < 5
        assert [update.again for update in updates if isinstance(update, SentUpdate)] == [False, True]
        assert len(second.served) == 1
        first.tamper = lambda _one, lines: lines
        await asked(stage)
        assert len(second.served) == 2


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 6])
async def test_a_machine_that_stands_still_is_left_within_five_seconds(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel takes connections and nobody reads them: a process that was stopped, or a host behind a dead line.

    Many questions at once wait for it once. Half of the wait is tried, so that a busy machine has time for the rest.
    """
    assert session.PRICES_SECONDS < 5
    monkeypatch.setattr(session, "PRICES_SECONDS", session.PRICES_SECONDS / 2)
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        sent: list[httpx.Request] = []

        async def note(request: httpx.Request) -> None:
            sent.append(request)

        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30.0)
            client.event_hooks["request"].append(note)
            stage.clients[first.key.address] = client
            with seconds_waited() as waited:
                answers = await asyncio.gather(*(asked(stage) for _ in range(at_once)))
            assert waited() < 5
            assert len(sent) == 1
            await client.aclose()
        assert [text_of(answer) for answer in answers] == ["hello world"] * at_once
        assert (len(first.served), len(second.served)) == (0, at_once)


async def test_where_nobody_is_quick_the_first_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is this machine that is slow, or its line."""
    monkeypatch.setattr(session, "PRICES_SECONDS", 0.2)
    async with toy_stage(tmp_path, schedulers=2) as stage:
        for toy in stage.schedulers:
            toy.delay = 0.5
        with pytest.raises(SchedulerUnreachable, match="did not answer within"):
            await stage.session.open_tab_context(stage.session.usable()[0])
        assert await stage.session.ready()
        assert text_of(await asked(stage)) == "hello world"


async def test_the_last_tab_that_is_left_has_its_time_to_admit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "ADMISSION_SECONDS", 0.3)
    async with toy_stage(tmp_path, schedulers=2) as stage:
        first, second = stage.schedulers
        first.tamper = lambda _one, _lines: [None]
        await asked(stage, SELDOM)
        assert (len(first.served), len(second.served)) == (1, 1)
        second.admitting.clear()
        asyncio.get_running_loop().call_later(0.8, second.admitting.set)
        assert text_of(await asked(stage, SELDOM)) == "hello world"
        assert (len(first.served), len(second.served)) == (1, 2)


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
        for tab_context in stage.session.tab_contexts.values():
            tab_context.away_until = 0.0
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


@pytest.mark.slow
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
