"""The store of tabs under any order of steps, by two connections: books follow the rules, and no word goes back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from troth.chain.keystore import Key
from troth.client.tabs.books import TabBooks, is_newer
from troth.client.tabs.errors import TabShort
from troth.client.tabs.store import TabStore
from troth.protocol.market import tabs
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.messages import Signed, market_domain, tab_id
from troth.protocol.market.types import Tab, TabState, Voucher
from troth.protocol.types import address_from_bytes

BANK = address_from_bytes(b"\xba" * 20)
KEY = Key.from_secret(b"\x09" * 32)
TAB = Tab(address_from_bytes(b"\1" * 20), address_from_bytes(b"\2" * 20), KEY.address)
DOMAIN = market_domain(31337, BANK)
STATE = TabState(balance=10_000, known=True)

STEPS = some.lists(
    some.tuples(
        some.sampled_from(("order", "pay", "fail", "reopen")), some.integers(1, 3_000), some.integers(0, 1), some.data()
    ),
    max_size=30,
)


def books_at(path: Path) -> tuple[TabStore, TabBooks]:
    store = TabStore(path)
    books = TabBooks(store)
    books.add(TAB, chain_id=31337, bank=BANK, factory=BANK)
    return store, books


def step(books: TabBooks, what: str, amount: int, data: Any) -> list[Signed[Voucher]]:
    """One step, or nothing where the rules do not allow it; the word that was signed."""
    identifier = tab_id(TAB)
    book = books.record(identifier).book
    try:
        if what == "order":
            return [books.order(identifier, amount, STATE, KEY, lambda _number, voucher: voucher)]
        if book.bounds:
            number = data.draw(some.sampled_from(sorted(book.bounds)))
            fee = min(amount, book.bounds[number]) if what == "pay" else 0
            return [books.acknowledge(identifier, number, fee, KEY)]
    except (TabShort, InvalidVoucher):
        assert books.record(identifier).book == book
    return []


@pytest.mark.slow
@settings(max_examples=60)
@given(STEPS)
def test_a_payee_accepts_every_word_in_the_order_in_which_it_was_signed(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tabs.sqlite3"
        stores = [books_at(path), books_at(path)]
        identifier, words = tab_id(TAB), list[Signed[Voucher]]()
        for what, amount, number, data in steps:
            if what == "reopen":
                stores[number][0].close()
                stores[number] = books_at(path)
                continue
            words += step(stores[number][1], what, amount, data)
            books = [one.record(identifier).book for _, one in stores]
            assert books[0] == books[1]
            assert books[0].authorised <= STATE.balance
        payee = tabs.PayeeBook(tabs.first_voucher(identifier))
        for signed in words:
            payee = tabs.accept(payee, signed.require(DOMAIN, KEY.address))
        record = stores[0][1].record(identifier)
        assert record.voucher is None or record.voucher.message == record.book.voucher == payee.best
        for store, _ in stores:
            store.close()


@pytest.mark.slow
@settings(max_examples=60)
@given(STEPS, some.integers(0, 30))
def test_a_backup_resumes_from_the_newest_word_and_from_no_older_one(steps: list[Any], when: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, books = books_at(Path(folder) / "tabs.sqlite3")
        identifier = tab_id(TAB)
        backup, words = books.record(identifier).book, list[Signed[Voucher]]()
        for number, (what, amount, _, data) in enumerate(steps):
            if number == when:
                backup = books.record(identifier).book
            words += step(books, what, amount, data)
        record = books.record(identifier)
        if record.voucher is not None:
            assert is_newer(record.voucher.message, backup) == (record.book != backup)
            for signed in words:
                assert not is_newer(signed.message, record.book)
        assert books.record(identifier).book == record.book
        store.close()


@pytest.mark.slow
@settings(max_examples=40)
@given(some.lists(some.integers(1, 100), min_size=1, max_size=20))
def test_two_connections_never_give_a_number_out_twice(amounts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tabs.sqlite3"
        (first, one), (second, two) = books_at(path), books_at(path)
        given_out = [
            (one if place % 2 else two).order(tab_id(TAB), amount, STATE, KEY, lambda number, _voucher: number)
            for place, amount in enumerate(amounts)
        ]
        assert given_out == list(range(1, len(amounts) + 1))
        first.close()
        second.close()
