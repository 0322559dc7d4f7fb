"""Whatever payer and payee do on a tab, nothing is paid twice, nothing is forgotten, and a backup cannot go back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.market_scene import hash_of

from troth.protocol.market import claims, tabs
from troth.protocol.market.errors import InvalidVoucher, MarketError
from troth.protocol.market.tabs import WINDOW, PayeeBook, PayerBook, is_acknowledged, outstanding
from troth.protocol.market.types import TabState, Voucher

TAB = hash_of("tab")
OPEN = TabState(balance=100_000, known=True)

vouchers = st.builds(
    Voucher,
    tab=st.just(TAB),
    spent=st.integers(0, 1_000),
    authorised=st.integers(1_000, 5_000),
    sequence=st.integers(300, 700),
    acknowledged_through=st.integers(0, 300),
    exceptions=st.integers(0, (1 << 256) - 1),
)


def _naive(voucher: Voucher, number: int) -> bool:
    """The rule as the specification words it."""
    if number > voucher.acknowledged_through:
        return False
    excepted = [voucher.acknowledged_through - bit for bit in range(256) if voucher.exceptions & 2**bit]
    return number not in excepted


@pytest.mark.slow
@given(vouchers)
def test_the_window_is_what_the_specification_says(voucher: Voucher) -> None:
    numbers = range(1, voucher.sequence + 1)
    assert [is_acknowledged(voucher, number) for number in numbers] == [_naive(voucher, number) for number in numbers]
    assert list(outstanding(voucher)) == [number for number in numbers if not _naive(voucher, number)]


@dataclass
class Play:
    """Both books, the chain's tab, and what was really served and paid."""

    payer: PayerBook
    payee: PayeeBook
    state: TabState = OPEN
    signed: tuple[Voucher, ...] = ()

    def order(self, most: int) -> None:
        self.payer, number = tabs.order_next(self.payer, most, self.state)
        self.hand_over()
        self.payee = tabs.admit(self.payee, number, most, self.state)

    def hand_over(self) -> None:
        self.payee = tabs.accept(self.payee, self.payer.voucher)
        self.signed = (*self.signed, self.payer.voucher)


steps = st.lists(
    st.tuples(st.sampled_from(("order", "serve", "acknowledge", "redeem", "claim")), st.integers(0, 500)), max_size=60
)


@pytest.mark.slow
@settings(max_examples=150)
@given(steps)
def test_no_number_is_paid_twice_and_nothing_honest_is_lost(plan: list[tuple[str, int]]) -> None:
    play = Play(PayerBook(TAB), PayeeBook(tabs.first_voucher(TAB)))
    fees: dict[int, int] = {}
    for step, amount in plan:
        open_numbers = sorted(play.payer.bounds)
        if step == "order":
            play.order(amount)
        elif step == "serve" and open_numbers:
            number = open_numbers[amount % len(open_numbers)]
            if number not in fees:
                fees[number] = play.payer.bounds[number] // 2
                play.payee = tabs.served(play.payee, number, fees[number])
        elif step == "acknowledge" and set(open_numbers) & fees.keys():
            choice = sorted(set(open_numbers) & fees.keys())
            number = choice[amount % len(choice)]
            play.payer = tabs.acknowledge(play.payer, number, fees[number])
            play.hand_over()
        elif step == "redeem" and play.signed:
            # Any old voucher may be shown at any time.
            play.state, _ = tabs.redeem(play.state, play.signed[amount % len(play.signed)].spent)
        elif step == "claim" and play.signed:
            voucher = play.signed[amount % len(play.signed)]
            wanted = {n: fees[n] for n in outstanding(voucher) if fees.get(n)}
            if wanted:
                claim, _ = claims.claim_of(voucher, wanted)
                play.state, _ = tabs.redeem(play.state, claims.owed(voucher, claim))
        book = play.payee
        assert book.exposure == sum(book.worth.values())
        assert book.unpaid == tuple(number for number in outstanding(book.best) if number in book.worth)
        assert book.left_by(play.payer.voucher) == sum(
            worth for number, worth in book.worth.items() if not is_acknowledged(play.payer.voucher, number)
        )
        assert play.state.redeemed <= sum(fees.values())
        assert play.state.redeemed + play.state.balance == OPEN.balance
    # In the end the payee claims all that is outstanding: every fee is paid, once.
    voucher = play.payee.best
    wanted = {number: fees[number] for number in outstanding(voucher) if fees.get(number)}
    shown = claims.owed(voucher, claims.claim_of(voucher, wanted)[0]) if wanted else voucher.spent
    play.state, _ = tabs.redeem(play.state, shown)
    assert play.state.redeemed == sum(fees.values())


class _Unsummed(dict[int, int]):
    def values(self) -> Any:
        raise AssertionError("all open numbers are added up")


def test_an_order_does_not_add_up_all_that_is_open() -> None:
    """A client's program may have thousands of open numbers, and each order added all of them up six times."""
    first = Voucher(TAB, 0, 300, 300, 0, 0)
    book = PayeeBook(first, _Unsummed(dict.fromkeys(range(1, 301), 1)), 300)
    word = replace(first, authorised=305, sequence=301)
    assert book.left_by(word) == 300
    after = tabs.admit(tabs.accept(book, word), 301, 5, OPEN)
    assert after.exposure == sum(after.worth.values()) == 305
    answered = tabs.served(PayeeBook(after.best, _Unsummed(after.worth), after.exposure), 301, 2)
    assert answered.exposure == sum(answered.worth.values()) == 302


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.data())
def test_owed_is_the_largest_sum_and_a_short_tab_pays_in_part(shown: list[int], data: st.DataObject) -> None:
    state = TabState(balance=data.draw(st.integers(0, 60)), known=True)
    start = state.balance
    for owed in shown:
        state, paid = tabs.redeem(state, owed)
        assert paid >= 0
        assert state.balance >= 0
    assert state.redeemed == min(max(shown), start)
    # What was short is paid as soon as there is something: a voucher is never used up.
    topped = replace(state, balance=state.balance + 100)
    assert tabs.redeem(topped, max(shown))[0].redeemed == max(shown)


@given(vouchers, vouchers)
def test_a_payee_never_accepts_less_than_before(first: Voucher, second: Voucher) -> None:
    worth = dict.fromkeys(outstanding(first)[:40], 3)
    book = PayeeBook(replace(first, authorised=first.spent + 3 * len(worth)), worth)
    try:
        after = tabs.accept(book, second)
    except InvalidVoucher:
        return
    assert second.spent >= first.spent
    for number in range(1, first.sequence + 1):
        assert not is_acknowledged(first, number) or is_acknowledged(second, number)
    paid = [number for number in worth if is_acknowledged(second, number)]
    assert second.spent - first.spent >= 3 * len(paid)
    assert after.worth.keys() == worth.keys() - set(paid)
    assert after.payable + after.exposure <= second.authorised


def _played(orders: int, paid: int) -> Play:
    play = Play(PayerBook(TAB), PayeeBook(tabs.first_voucher(TAB)))
    for _ in range(orders):
        play.order(10)
    for number in range(1, paid + 1):
        play.payee = tabs.served(play.payee, number, 10)
        play.payer = tabs.acknowledge(play.payer, number, 10)
    play.hand_over()
    return play


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spent": 19}, "goes backwards: spent"),
        ({"sequence": 4}, "goes backwards: sequence"),
        ({"acknowledged_through": 1}, "goes backwards: acknowledged"),
        ({"exceptions": 1}, "exceptions now"),
        ({"acknowledged_through": 3}, "pays less"),
        ({"authorised": 49}, "more than the voucher authorises"),
        ({"authorised": 19}, "cannot have spent more"),
        ({"acknowledged_through": 6}, "acknowledges later ones"),
        ({"tab": hash_of("other")}, "another tab"),
    ],
)
def test_a_word_that_says_less_is_refused(changes: dict[str, int], words: str) -> None:
    play = _played(orders=5, paid=2)
    with pytest.raises(InvalidVoucher, match=words):
        tabs.accept(play.payee, replace(play.payer.voucher, **changes))


def test_a_number_cannot_fall_out_of_the_window_unpaid() -> None:
    play = Play(PayerBook(TAB), PayeeBook(tabs.first_voucher(TAB)))
    for _ in range(WINDOW + 1):
        play.order(1)
    for number in range(2, WINDOW + 1):
        play.payee = tabs.served(play.payee, number, 1)
        play.payer = tabs.acknowledge(play.payer, number, 1)
    with pytest.raises(InvalidVoucher, match="leave the window"):
        tabs.acknowledge(play.payer, WINDOW + 1, 1)
    play.hand_over()
    play.payee = tabs.served(play.payee, WINDOW + 1, 1)
    # A payer that signs it all the same: number 1 would count as acknowledged, for nothing.
    forged = Voucher(TAB, WINDOW, WINDOW + 1, WINDOW + 1, WINDOW + 1, 0)
    assert is_acknowledged(forged, 1)
    with pytest.raises(InvalidVoucher, match="pays less"):
        tabs.accept(play.payee, forged)


def test_a_restored_payer_goes_on_from_its_newest_word() -> None:
    play = _played(orders=4, paid=2)
    old, newest = PayerBook(TAB), play.payer
    with pytest.raises(InvalidVoucher, match="goes backwards"):
        tabs.accept(play.payee, tabs.order_next(old, 10, OPEN)[0].voucher)
    assert newest.bounds == {3: 10, 4: 10}
    # Its payee took none of them, or hides them and gains nothing: the next word pays all that it shows.
    resumed = tabs.resume(newest.voucher, ())
    assert (resumed.bounds, resumed.sequence, resumed.spent) == ({}, 4, newest.spent)
    again, number = tabs.order_next(resumed, 10, OPEN)
    payee = tabs.admit(tabs.accept(PayeeBook(newest.voucher), again.voucher), number, 10, OPEN)
    tabs.accept(tabs.served(payee, number, 7), tabs.acknowledge(again, number, 7).voucher)
    with pytest.raises(InvalidVoucher, match="more than the voucher authorises"):
        tabs.accept(play.payee, again.voucher)


def test_what_the_tab_does_not_cover_is_not_ordered_and_not_admitted() -> None:
    state = TabState(balance=50, redeemed=10, known=True)
    book, number = tabs.order_next(PayerBook(TAB), 60, state)
    with pytest.raises(InvalidVoucher, match="covers 60"):
        tabs.order_next(book, 1, state)
    payee = tabs.accept(PayeeBook(tabs.first_voucher(TAB)), book.voucher)
    assert tabs.admit(payee, number, 60, state).exposure == 60
    for shorter in (replace(state, balance=49), replace(state, closes_at=7), TabState()):
        with pytest.raises(MarketError):
            tabs.admit(payee, number, 60, shorter)
    with pytest.raises(InvalidVoucher, match="does not authorise this number"):
        tabs.admit(payee, 2, 0, state)


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, tabs.ROOM))
def test_a_tab_takes_no_more_orders_before_one_that_is_never_settled_leaves_the_window(stuck: int, most: int) -> None:
    book, running = PayerBook(TAB), list[int]()
    while tabs.blocking(book) is None:
        book, number = tabs.order_next(book, 1, OPEN)
        running += [number] if number != stuck else []
        if len(running) == most:
            book = tabs.acknowledge(book, running.pop(0), 0)
    assert tabs.blocking(book) == stuck
    # What runs then can still be paid, all of it.
    for number in running:
        book = tabs.acknowledge(book, number, 1)
    assert set(book.bounds) == {stuck}
