"""Fees are monotone and rounded up once; the lottery hits at its rate; the inequality is never too kind."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.market_scene import Scene, execution_class, hash_of, rules
from support.sound_classes import deters

from troth.protocol.errors import InvalidField
from troth.protocol.market import economy, lottery, prices
from troth.protocol.market.errors import InvalidSecret, WeakEconomy
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.signed import Draw, Order, Promise, Result
from troth.protocol.market.types import Ask, Parameters
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH

ORDER, RULES = Scene().order, rules()
RESULT = Result(hash_of("order"), 0, *[ZERO_HASH] * 2, 30, 0, 12, ZERO_HASH, ZERO_HASH)
counts = st.integers(0, 2**20)
price = st.integers(0, 2**40)


def _order(asked: tuple[int, int, int], rate: int = 50_000, bound: int = 2**90) -> Order:
    prompt, cached, written = asked
    changes = {"prompt_price": prompt, "cached_price": cached, "written_price": written}
    return replace(ORDER, **changes, check_rate=rate, max_fee=bound)


@given(st.tuples(price, price, price), st.tuples(counts, counts, counts), st.integers(1, 10**6), st.integers(1, 8))
def test_a_fee_is_its_exact_price_rounded_up_once(
    asked: tuple[int, int, int], used: tuple[int, int, int], rate: int, segments: int
) -> None:
    open_rules = replace(RULES, fee_cap=2**90)
    result = replace(RESULT, prompt=used[0], cached=used[1], written=used[2])
    work = sum(Fraction(one * count, 10**9) for one, count in zip(asked, used, strict=True))
    checks = Fraction(sum(used) * RULES.check_price * RULES.verifiers * segments * rate, 10**15)
    assert prices.fee(_order(asked, rate), open_rules, segments, result) == ceil(work + checks)


@given(st.tuples(counts, counts, counts), st.tuples(counts, counts, counts))
def test_more_work_never_costs_less_and_never_more_than_the_bound(
    first: tuple[int, int, int], more: tuple[int, int, int]
) -> None:
    order = _order((10**9, 10**8, 2 * 10**9), bound=5_000)
    small = replace(RESULT, prompt=first[0], cached=first[1], written=first[2])
    large = replace(RESULT, **{n: a + b for n, a, b in zip(("prompt", "cached", "written"), first, more, strict=True)})
    low, high = (prices.fee(order, RULES, 1, result) for result in (small, large))
    assert low <= high <= 5_000
    assert prices.fee(replace(order, max_fee=2**90), RULES, 1, large) <= RULES.fee_cap


@given(counts, counts, counts)
def test_the_most_is_never_less_than_the_price(prompt: int, cached: int, written: int) -> None:
    """What was ordered is always owed: a leaf that costs more than its order's bound is worth nothing."""
    result = replace(RESULT, prompt=prompt, cached=cached, written=written)
    bound = prices.most(ORDER, RULES, 2, prompt=prompt + cached, written=written)
    assert prices.price(ORDER, RULES, 2, result) <= bound
    assert prices.fee(replace(ORDER, max_fee=bound), RULES, 2, result) <= min(bound, RULES.fee_cap)


@given(st.integers(0, 2**40), st.integers(0, 2**30))
def test_units_keep_the_proportions_of_the_paper(check_price: int, count: int) -> None:
    priced = replace(RULES, check_price=check_price)
    unit = prices.unit(priced, count)
    assert unit == max(ceil(Fraction(check_price * count, 6 * 10**9)), 1)
    assert prices.check_reward(priced, count) == 6 * unit


@given(st.integers(0, 2**64 - 1), st.integers(0, 10_000), st.integers(1, 100), st.integers(1, 100))
def test_nodes_of_all_segments_together_never_ask_more_than_the_order_pays(
    one_price: int, share: int, width: int, others: int
) -> None:
    order = replace(ORDER, prompt_price=one_price, node_share=share)
    layers = width + others
    parts = [prices.bound(order, part, layers).prompt for part in (width, others)]
    assert sum(parts) <= one_price * share // 10_000
    assert parts[0] == one_price * share * width // (10_000 * layers)


def test_a_promise_is_worth_its_work_at_most_its_price() -> None:
    promised = Promise(ZERO_HASH, 1, ZERO_HASH, 0, 0, 1, 10**9, 10**8, 2 * 10**9, 50)
    assert prices.promise_worth(promised, RESULT) == 50
    assert prices.promise_worth(replace(promised, price=500), RESULT) == 30 + 24
    assert prices.promise_worth(replace(promised, price=500), replace(RESULT, cached=1)) == 55
    with pytest.raises(InvalidField):
        prices.bound(ORDER, 13, 12)
    assert prices.within(Ask(1, 2, 3), Ask(1, 2, 3))
    for larger in (Ask(2, 2, 3), Ask(1, 3, 3), Ask(1, 2, 4)):
        assert not prices.within(larger, Ask(1, 2, 3))


# ------------------------------------------------------------------------------------------------------------ lottery


def test_the_lottery_hits_at_its_rate() -> None:
    beta = hash_of("beta")
    for rate in (10_000, 50_000, 500_000):
        share = rate / 10**6
        hit = sum(lottery.hits(hash_of(f"secret {number}"), beta, rate) for number in range(4_000))
        assert abs(hit - 4_000 * share) < 4 * (4_000 * share * (1 - share)) ** 0.5


@given(st.binary(min_size=32, max_size=32), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_higher_rate_never_hits_less(secret: bytes, low: int, high: int) -> None:
    first, beta = hash_of(secret.hex()), hash_of("beta")
    low, high = min(low, high), max(low, high)
    assert not lottery.hits(first, beta, 0)
    assert lottery.hits(first, beta, low) <= lottery.hits(first, beta, high) <= lottery.hits(first, beta, 10**6)


def test_secrets_are_fresh_hidden_and_bound_to_their_order() -> None:
    master = b"\x07" * 32
    made = {
        lottery.secrets_for(master, hash_of(tab), number, hash_of(request))
        for tab in ("a", "b")
        for number in (1, 2)
        for request in ("first", "salted again")
    }
    assert len(made) == 8
    assert len({one.draw for one in made} | {one.tiles for one in made}) == 16
    own = Secrets(hash_of("one"), hash_of("two"))
    assert "…" in repr(own)
    assert own.draw.hex() not in repr(own)
    order = replace(ORDER, draw_hash=own.draw_hash, tiles_hash=own.tiles_hash)
    lottery.require_tiles_secret(order, own.tiles)
    assert lottery.is_drawn(replace(order, check_rate=10**6), own.draw, hash_of("beta"))
    for require, wrong in ((lottery.require_draw_secret, own.tiles), (lottery.require_tiles_secret, own.draw)):
        with pytest.raises(InvalidSecret) as caught:
            require(order, wrong)
        assert wrong.hex() not in str(caught.value)


def test_a_secret_is_due_by_half_of_the_lag() -> None:
    windows = dict.fromkeys(
        ("summons_window", "lookahead", "draw_window", "commit_window", "reveal_window", "claim_delay"), 1
    )
    more = dict.fromkeys(("answer_window", "close_delay", "unbonding", "seasoning", "reference_age"), 1)
    rest = dict.fromkeys(("suspension_pause", "scheduler_stake", "gas_price"), 1)
    parameters = Parameters(ZERO_ADDRESS, 50, **windows, **more, **rest, weights=ZERO_ADDRESS, prover=ZERO_ADDRESS)
    assert lottery.secret_due(Draw(ZERO_HASH, ZERO_HASH, ZERO_HASH, 1_000), parameters) == 1_025


# ------------------------------------------------------------------------------------------------------------ economy


def _tail(count: int, least: int, share: int) -> Fraction:
    r = Fraction(share, 10_000)
    return sum((comb(count, n) * r**n * (1 - r) ** (count - n) for n in range(least, count + 1)), Fraction(0))


@given(st.sampled_from((1, 3, 5, 7)), st.sampled_from((15, 17, 31)), st.integers(5_001, 10_000), st.integers(1, 10**6))
def test_p_is_rounded_down_by_next_to_nothing(verifiers: int, reviewers: int, share: int, rate: int) -> None:
    exact = Fraction(rate, 10**6) * _tail(verifiers, verifiers // 2 + 1, share)
    exact *= _tail(reviewers, -(-2 * reviewers // 3), share)
    ours = Fraction(economy.detection(rate, share, verifiers, reviewers), economy.ONE)
    assert 0 <= exact - ours < Fraction(5, economy.ONE)


@given(st.integers(1, 10**30), st.integers(1, economy.ONE))
def test_the_least_penalty_is_the_least(gain: int, probability: int) -> None:
    least = economy.least_penalty(gain, probability)
    assert deters(least, gain, probability)
    assert least == 0 or not deters(least - 1, gain, probability)
    # What a cheat loses is one and a half times what it gains until it is found.
    assert 2 * least * probability >= 3 * gain * (economy.ONE - probability)


def test_the_figures_of_the_specification() -> None:
    for share, probability, times in ((8_000, 0.042, 34), (6_000, 0.013, 113)):
        found = economy.detection(50_000, share, 3, 15)
        assert round(found / economy.ONE, 3) == probability
        assert round(economy.least_penalty(1_000, found) / 1_000) == times
    assert economy.supermajority(15) == 10
    assert economy.supermajority(31) == 21


def test_a_class_in_which_cheating_could_pay_is_refused() -> None:
    sound = execution_class()
    economy.require_sound(sound, gas_price=0, scheduler_stake=2**96)
    least = economy.least_penalty(sound.fee_cap, economy.detection_of(sound))
    economy.require_sound(replace(sound, penalty=least), gas_price=0, scheduler_stake=2**96)
    with pytest.raises(WeakEconomy, match=f"at least {least}"):
        economy.require_sound(replace(sound, penalty=least - 1), gas_price=0, scheduler_stake=2**96)
    with pytest.raises(WeakEconomy, match="Cheating would pay"):
        economy.require_sound(replace(sound, least_check_rate=10_000), gas_price=0, scheduler_stake=2**96)
    with pytest.raises(WeakEconomy, match="A seat must have at least 8400000"):
        economy.require_sound(replace(sound, seat=8_399_999), gas_price=0, scheduler_stake=2**96)
    with pytest.raises(WeakEconomy, match="at least 157272936"):
        economy.require_sound(sound, gas_price=10**11, scheduler_stake=2**96)
    with pytest.raises(WeakEconomy, match="ever found"):
        economy.least_penalty(1, 0)
