"""The books of a node's tabs, driven by a payer's book through random courses: nobody is paid less, or twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.order_market import CLIENT_KEY, DEPOSIT, DOMAIN, SCHEDULER, SCHEDULER_KEY, with_tab

from troth.node.earning.books import NodeBooks, NodeLedger, NotPaid
from troth.node.earning.database import NodeDatabase
from troth.node.earning.leaf import Stage
from troth.node.errors import NodeStorageError
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, claims, tabs
from troth.protocol.market.leaves import inference_leaf
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.papers import Pay
from troth.protocol.market.signed import Promise, Result, Work
from troth.protocol.market.state import State
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.types import ZERO_HASH, Hash32

ME = typed_data.address_of(b"\x77" * 32)
TAB = Tab(SCHEDULER, ME, SCHEDULER)
TAB_ID = tab_id(TAB)
PRICE = 100


@contextmanager
def books() -> Iterator[NodeBooks]:
    with tempfile.TemporaryDirectory() as folder:
        database = NodeDatabase(Path(folder) / "books.sqlite")
        try:
            yield NodeBooks(database)
        finally:
            database.close()


def ledger() -> NodeLedger:
    return NodeLedger(with_tab(State(), TAB), DOMAIN, ME, 50)


def order_of(number: int) -> Hash32:
    return Hash32(number.to_bytes(32))


def pay(payer: tabs.PayerBook, number: int, key: bytes = SCHEDULER_KEY) -> Pay:
    promise = Promise(TAB_ID, number, order_of(number), 0, Work.INFERENCE, 10, 1, 1, 1, PRICE)
    return Pay(TAB, sign(promise, DOMAIN, SCHEDULER_KEY), sign(payer.voucher, DOMAIN, key))


def finish(kept: NodeBooks, number: int, worth: int) -> None:
    leaf = kept.leaf(order_of(number), 0, Work.INFERENCE)
    assert leaf is not None
    result = Result(order_of(number), 0, ZERO_HASH, ZERO_HASH, 1, 0, 1, ZERO_HASH, ZERO_HASH)
    evidence = canonical.encode(inference_leaf(leaf.promise, sign(result, DOMAIN, b"\x77" * 32)))
    kept.done(replace(leaf, stage=Stage.DONE, worth=worth, evidence=evidence, done_at=1.0, done_block=50))


def take_on_and_fail(kept: NodeBooks, payer: tabs.PayerBook, standing: NodeLedger) -> None:
    """An order whose records the disk does not take."""
    later, number = tabs.order_next(payer, PRICE, standing.state.tab_state(TAB_ID))
    with kept._database.transaction():
        kept.take_on(pay(later, number), ME, standing, limit=10**9, now=0.0)
        raise InterruptedError


def take_on_with_a_full_disk(kept: NodeBooks, pay_for: Pay, standing: NodeLedger) -> None:
    """An order whose other records find no room."""
    connection = kept._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages + 3}")
    with kept._database.transaction():
        kept.take_on(pay_for, ME, standing, limit=10**9, now=0.0)
        kept._database.write("INSERT INTO others VALUES (zeroblob(1000000))")


def test_a_full_disk_leaves_nothing_remembered_that_is_not_written() -> None:
    """SQLite itself takes back the whole transaction where the disk is full."""
    with books() as kept:
        kept._database.create("CREATE TABLE others (what BLOB)")
        standing = ledger()
        payer, number = tabs.order_next(tabs.PayerBook(TAB_ID), PRICE, standing.state.tab_state(TAB_ID))
        with pytest.raises(NodeStorageError, match="full"):
            take_on_with_a_full_disk(kept, pay(payer, number), standing)
        assert kept.open_leaves(TAB_ID) == NodeBooks(kept._database).open_leaves(TAB_ID) == ()
        kept._database._connection.execute("PRAGMA max_page_count=1000000")
        kept.take_on(pay(payer, number), ME, standing, limit=10**9, now=0.0)
        assert kept.book(TAB_ID, standing).exposure == PRICE


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["order", "finish", "break", "acknowledge", "overtake", "restart", "full disk"]),
        st.integers(0, 100),
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(STEPS)
def test_payer_and_payee_agree_after_any_course(steps: list[tuple[str, int]]) -> None:
    with books() as kept:
        payer, running, done, standing = tabs.PayerBook(TAB_ID), set(), {}, ledger()
        old = sign(payer.voucher, DOMAIN, SCHEDULER_KEY)
        earned = 0
        for step, drawn in steps:
            if step == "order":
                payer, number = tabs.order_next(payer, PRICE, standing.state.tab_state(TAB_ID))
                kept.take_on(pay(payer, number), ME, standing, limit=10**9, now=0.0)
                running.add(number)
            elif step == "finish" and running:
                number = sorted(running)[drawn % len(running)]
                finish(kept, number, drawn)
                running.discard(number)
                done[number] = drawn
                earned += drawn
            elif step == "break" and running:
                number = sorted(running)[drawn % len(running)]
                kept.broke_off(order_of(number), 0, Work.INFERENCE)
                running.discard(number)
                done[number] = 0
            elif step == "acknowledge" and done:
                number = sorted(done)[drawn % len(done)]
                payer = tabs.acknowledge(payer, number, done.pop(number))
                kept.hear(TAB, sign(payer.voucher, DOMAIN, SCHEDULER_KEY), standing)
            elif step == "overtake":
                kept.hear(TAB, old, standing)
            elif step == "restart":
                kept.end_running()
                done |= dict.fromkeys(running, 0)
                running.clear()
            elif step == "full disk":
                with pytest.raises(InterruptedError):
                    take_on_and_fail(kept, payer, standing)
            book = kept.book(TAB_ID, standing)
            # What is remembered is what is on disk.
            assert NodeBooks(kept._database).book(TAB_ID, ledger()) == book
            assert NodeBooks(kept._database).open_leaves(TAB_ID) == kept.open_leaves(TAB_ID)
            assert book.exposure == PRICE * len(running) + sum(done.values())
            assert book.payable == earned - sum(done.values())
            assert set(book.worth) == running | done.keys()
            assert kept.claimable(TAB_ID, standing) == {number: worth for number, worth in done.items() if worth}


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(1, 900), st.integers(1, 50), min_size=1, max_size=60),
    st.integers(1, 900),
    st.integers(0, 2000),
)
def test_what_is_claimed_together_can_always_be_filed(amounts: dict[int, int], sequence: int, room: int) -> None:
    voucher = Voucher(TAB_ID, 7, 7 + room, sequence, 0, 0)
    chosen = claims.together(amounts, voucher)
    assert chosen.items() <= amounts.items()
    if chosen:
        claim, tree = claims.claim_of(voucher, chosen)
        assert claims.owed(voucher, claim) == 7 + sum(chosen.values())
        for number in range(claim.first, claim.last + 1):
            claims.verify_path(claim, number, chosen.get(number, 0), tree.path(number))
    first = min(amounts)
    assert bool(chosen) == (first <= sequence and amounts[first] <= room)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, PRICE - 1))
def test_a_word_that_pays_less_or_is_forged_changes_nothing(count: int, paid: int) -> None:
    with books() as kept:
        payer = tabs.PayerBook(TAB_ID)
        for _ in range(count):
            payer, number = tabs.order_next(payer, PRICE, ledger().state.tab_state(TAB_ID))
            kept.take_on(pay(payer, number), ME, ledger(), limit=10**9, now=0.0)
            finish(kept, number, PRICE)
        before = kept.voucher(TAB_ID), kept.book(TAB_ID, ledger())
        short = tabs.acknowledge(payer, 1, paid)
        forged = sign(replace(payer.voucher, spent=1), DOMAIN, CLIENT_KEY)
        for word in (sign(short.voucher, DOMAIN, SCHEDULER_KEY), forged):
            with pytest.raises(ProtocolError):
                kept.hear(TAB, word, ledger())
        assert (kept.voucher(TAB_ID), kept.book(TAB_ID, ledger())) == before


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(1, 8))
def test_unpaid_work_never_exceeds_the_limit(orders: int, allowed: int) -> None:
    with books() as kept:
        payer, taken = tabs.PayerBook(TAB_ID), 0
        for _ in range(orders):
            payer, number = tabs.order_next(payer, PRICE, ledger().state.tab_state(TAB_ID))
            if taken == allowed:
                with pytest.raises(NotPaid, match="unpaid"):
                    kept.take_on(pay(payer, number), ME, ledger(), limit=PRICE * allowed, now=0.0)
                continue
            kept.take_on(pay(payer, number), ME, ledger(), limit=PRICE * allowed, now=0.0)
            taken += 1
        assert taken == min(orders, allowed)
        assert kept.book(TAB_ID, ledger()).exposure == PRICE * taken
    assert PRICE * orders < DEPOSIT


def test_what_a_court_voided_is_neither_asked_for_nor_claimed() -> None:
    with books() as kept:
        payer, number = tabs.order_next(tabs.PayerBook(TAB_ID), PRICE, ledger().state.tab_state(TAB_ID))
        kept.take_on(pay(payer, number), ME, ledger(), limit=10**9, now=0.0)
        finish(kept, number, PRICE)
        state = ledger().state
        fallen = replace(ledger(), state=replace(state, voided=state.voided.set((order_of(1), 0), ZERO_HASH)))
        assert kept.claimable(TAB_ID, ledger()) == {1: PRICE}
        assert kept.claimable(TAB_ID, fallen) == {}
        free = tabs.acknowledge(payer, 1, 0)
        with pytest.raises(ProtocolError, match="pays less"):
            kept.hear(TAB, sign(free.voucher, DOMAIN, SCHEDULER_KEY), ledger())
        kept.hear(TAB, sign(free.voucher, DOMAIN, SCHEDULER_KEY), fallen)
        assert kept.book(TAB_ID, fallen).exposure == 0
