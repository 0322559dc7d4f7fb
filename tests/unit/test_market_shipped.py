"""The parameters that ship hold together, and a class's money follows from g, q, k, m' and r."""

from __future__ import annotations

from dataclasses import replace

import pytest

from troth.protocol.market import economy, shipped
from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.shipped import DEMO, MAIN, Committees
from troth.protocol.market.types import ExecutionClass, Parameters
from troth.protocol.types import ZERO_HASH

CLASS = ExecutionClass(
    ZERO_HASH, "", 1, False, 7, 0, 10_000, 1, 3, 1, 3, 1, 1, 1, 9_000, 0, 0, 1, 1, 1, 1_000_001, 1, 1, ZERO_HASH
)


@pytest.mark.parametrize("parameters", [MAIN, DEMO])
def test_no_window_is_too_short(parameters: Parameters) -> None:
    assert shipped.broken_windows(parameters) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summons_window", 25),
        ("draw_window", 8_100),
        ("claim_delay", 2_800),
        ("answer_window", 1_800),
        ("close_delay", 4_200),
        ("unbonding", 9_000),
    ],
)
def test_a_window_that_is_too_short_is_named(name: str, value: int) -> None:
    assert shipped.broken_windows(replace(MAIN, **{name: value}))


def require_sound(money: shipped.ClassMoney, parameters: Parameters) -> None:
    economy.require_sound(
        money.put_into(CLASS), gas_price=parameters.gas_price, scheduler_stake=parameters.scheduler_stake
    )


@pytest.mark.parametrize(("parameters", "money"), [(MAIN, shipped.main_money()), (DEMO, shipped.demo_money())])
def test_a_class_with_this_money_is_accepted(parameters: Parameters, money: shipped.ClassMoney) -> None:
    require_sound(money, parameters)
    assert parameters.scheduler_stake >= 2 * money.penalty


def test_a_class_with_less_money_is_refused() -> None:
    money = shipped.main_money()
    least = economy.least_penalty(money.fee_cap, economy.detection_of(money.put_into(CLASS)))
    with pytest.raises(WeakEconomy):
        require_sound(replace(money, penalty=least - 1), MAIN)
    with pytest.raises(WeakEconomy):
        require_sound(replace(money, seat=money.seat - 1), MAIN)


def test_a_class_that_a_schedulers_stake_does_not_cover_is_refused() -> None:
    with pytest.raises(WeakEconomy, match="scheduler's least stake"):
        require_sound(shipped.main_money(), replace(MAIN, scheduler_stake=shipped.main_money().penalty - 1))


def test_a_class_whose_reward_brings_no_rejection_is_refused() -> None:
    """The inequality alone holds here, and a rejection would still lie where it is."""
    money = shipped.main_money()
    deterring = economy.least_penalty(money.fee_cap, economy.detection_of(money.put_into(CLASS)))
    convicting = economy.conviction(money.honest_share, money.reviewers)
    rewarding = economy.least_rewarding(convicting, economy.case_gas_of(money.put_into(CLASS)), MAIN.gas_price)
    assert rewarding > deterring
    for penalty in (deterring, rewarding - 1):
        with pytest.raises(WeakEconomy, match=f"at least {rewarding}"):
            require_sound(replace(money, penalty=penalty), MAIN)
    require_sound(replace(money, penalty=rewarding), MAIN)


def test_the_penalty_is_the_largest_of_its_reasons() -> None:
    committees = Committees(shipped.MAIN_CHECK_RATE, 3, 15, 6_000)
    cheap = replace(MAIN, gas_price=0)
    deterring = economy.least_penalty(10**15, committees.detection)
    assert shipped.penalty(cheap, committees, fee_cap=10**15, reward=1) == deterring
    assert shipped.penalty(MAIN, committees, fee_cap=1, reward=1) == shipped.worth_bringing(MAIN, committees, reward=1)
    honest = replace(committees, honest_share=10_000)
    assert shipped.penalty(MAIN, honest, fee_cap=1, reward=1) == shipped.paying(MAIN, honest, fee_cap=1, reward=1)


def test_a_penalty_pays_everybody_in_court() -> None:
    committees = Committees(shipped.MAIN_CHECK_RATE, 3, 15, 6_000)
    taken = shipped.paying(MAIN, committees, fee_cap=10**15, reward=10**14)
    owed = 10**15 + 15 * 10**14 + committees.case_gas * MAIN.gas_price // 10**9
    assert taken - taken // economy.REWARD_SHARE >= owed
    assert taken - 10 - (taken - 10) // economy.REWARD_SHARE < owed


def test_no_court_no_class() -> None:
    with pytest.raises(WeakEconomy):
        shipped.worth_bringing(MAIN, Committees(50_000, 3, 15, 0), reward=1)


def test_small_parameters_are_named_small() -> None:
    assert shipped.warning_of(MAIN) == ""
    said = shipped.warning_of(DEMO)
    assert "small" in said
    for word in (f"{MAIN.lag:,}", f"{DEMO.lag:,} blocks", "paid after", "checks and courts", "Put no money"):
        assert word in said
    assert " D " not in said, "whoever reads it has not read the protocol"
