"""Books on disk are those in memory, whatever happens on a tab in whatever order, and across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.market_scene import BLOCK, DOMAIN, LAG, SCHEDULER_KEY, TAB, TAB_KEY, Scene

from troth.protocol.market import messages, tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed, sign, signed_by_account
from troth.protocol.market.signed import Promise, Work
from troth.protocol.market.tabs import PayeeBook, PayerBook
from troth.protocol.market.types import TabState, Voucher
from troth.protocol.types import Address, Hash32, address_from_bytes
from troth.scheduler.tabs.client_tabs import ClientTabs
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.transport.identity import Operator

SCENE = Scene()
STATE = TabState(balance=10**9, known=True)
NODE = address_from_bytes(b"\x11" * 20)


def run(work: Callable[[SchedulerDatabase], Awaitable[None]]) -> None:
    async def go() -> None:
        with TemporaryDirectory() as folder:
            database = SchedulerDatabase(Path(folder) / "books.sqlite")
            await work(database)
            await database.close()

    asyncio.run(go())


# ------------------------------------------------------------------------------------------------------ clients' tabs


def _order(number: int) -> Any:
    return replace(SCENE.order, sequence=number)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["order", "serve", "fail", "pay", "late"]), st.integers(0, 99)), max_size=30))
def test_clients_books_are_the_same_after_a_restart(steps: list[tuple[str, int]]) -> None:
    async def work(database: SchedulerDatabase) -> None:
        held, payer, said = ClientTabs(database), PayerBook(messages.tab_id(TAB)), list[Signed[Voucher]]()
        running: dict[int, int] = {}
        for kind, pick in steps:
            statements: list[Any] = []
            if kind == "order":
                payer, number = tabs.order_next(payer, SCENE.order.max_fee, SCENE.view.tab_state)
                said.append(sign(payer.voucher, DOMAIN, TAB_KEY))
                # Requests overtake each other: the voucher beside an order may be an older one than the best.
                _, statements = held.take_on(_order(number), said[-1], SCENE.view)
                running[number] = -1
            elif kind in {"serve", "fail"} and running:
                number = sorted(running)[pick % len(running)]
                if running[number] < 0:
                    running[number] = 0 if kind == "fail" else pick
                    statements = held.serve(payer.tab, number, running[number], BLOCK + pick)
            elif kind == "pay" and any(fee >= 0 for fee in running.values()):
                done = [number for number, fee in sorted(running.items()) if fee >= 0]
                number = done[pick % len(done)]
                payer = tabs.acknowledge(payer, number, running.pop(number))
                said.append(sign(payer.voucher, DOMAIN, TAB_KEY))
                _, statements = held.acknowledge(TAB, said[-1], DOMAIN, signed_by_account)
            elif kind == "late" and said:
                before = held.book(payer.tab)
                held.acknowledge(TAB, said[pick % len(said)], DOMAIN, signed_by_account)
                assert held.book(payer.tab) == before
            if statements:
                await database.commit(*statements)
        again = ClientTabs(database)
        assert again.book(payer.tab) == held.book(payer.tab)
        assert again.exposure == held.exposure == held.book(payer.tab).exposure
        worth = {number: SCENE.order.max_fee if fee < 0 else fee for number, fee in running.items()}
        assert dict(again.book(payer.tab).worth) == worth
        kept = again.get(payer.tab)
        assert kept is None or set(kept.leaves) == set(worth)

    run(work)


# ------------------------------------------------------------------------------------------------------ tabs with nodes


def _wanted(price: int) -> Callable[[Hash32, int], Promise]:
    def make(tab: Hash32, number: int) -> Promise:
        return Promise(tab, number, SCENE.order_id, 0, Work.INFERENCE, BLOCK, 0, 0, 0, price)

    return make


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["promise", "fee", "due", "restart", "hold"]), st.integers(1, 99)), max_size=40)
)
def test_a_node_can_always_accept_the_newest_word_and_no_promise_is_lost(steps: list[tuple[str, int]]) -> None:
    async def work(database: SchedulerDatabase) -> None:
        operator = Operator(SCHEDULER_KEY, DOMAIN)
        held = NodeTabs(database, operator)
        node = PayeeBook(tabs.first_voucher(held.held(NODE).book.tab))
        prices: dict[int, int] = {}
        block, kept = BLOCK, set[int]()

        def decide(_node: Address, owed: Any) -> int | None:
            return None if owed.fee in kept else owed.fee

        for kind, pick in steps:
            statements: list[Any] = []
            if kind == "promise":
                promised, statements = held.promise(NODE, _wanted(pick), STATE)
                prices[promised.message.sequence] = pick
                await database.commit(*statements)
                node = tabs.accept(node, held.voucher(NODE).require(DOMAIN, operator.address))
                node = tabs.admit(node, promised.message.sequence, pick, STATE)
                continue
            open_ = sorted(held.held(NODE).owed)
            if kind == "fee" and open_:
                number = open_[pick % len(open_)]
                fee = min(pick, prices[number])
                statements = held.set_fee(NODE, number, fee, block + LAG)
                if number in node.worth:
                    node = tabs.served(node, number, min(fee, node.worth[number]))
            elif kind == "hold":
                kept ^= {pick}
            elif kind == "due":
                block += LAG
                statements = held.acknowledge_due(block, decide)
            elif kind == "restart":
                held = NodeTabs(database, operator)
            if statements:
                await database.commit(*statements)
            try:
                node = tabs.accept(node, held.voucher(NODE).message)
            except InvalidVoucher as error:  # pragma: no cover - what this test is for
                raise AssertionError(error.what) from error
        again = NodeTabs(database, operator)
        if prices:
            assert again.held(NODE).book == held.held(NODE).book
            assert again.held(NODE).owed == held.held(NODE).owed
            assert set(held.held(NODE).owed) == set(held.held(NODE).book.bounds)

    run(work)


# ----------------------------------------------------------------------------------------------------------- the file


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=12))
def test_commits_that_wait_together_stand_or_fall_alone(groups: list[list[int]]) -> None:
    """A step that is written twice is refused with all that came with it, and nothing else is."""

    async def work(database: SchedulerDatabase) -> None:
        def statements(group: list[int], name: int) -> list[Any]:
            key = [("INSERT INTO private VALUES (?, ?, ?)", (b"order", str(one), b"%d" % name)) for one in group]
            return [*key, ("INSERT INTO claims VALUES (?, ?, ?)", (b"%d" % name, b"", b""))]

        outcomes = await asyncio.gather(
            *[database.commit(*statements(group, name)) for name, group in enumerate(groups)], return_exceptions=True
        )
        written: dict[str, bytes] = {}
        for name, (group, outcome) in enumerate(zip(groups, outcomes, strict=True)):
            names = [str(one) for one in group]
            clashes = len(set(names)) < len(names) or any(one in written for one in names)
            assert isinstance(outcome, Exception) is clashes
            if not clashes:
                written |= dict.fromkeys(names, b"%d" % name)
        assert dict(database.read("SELECT name, data FROM private")) == written
        assert len(database.read("SELECT * FROM claims")) == len([one for one in outcomes if one is None])

    run(work)
