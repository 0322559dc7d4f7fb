"""The economy of what ships: nobody gains by cheating, whoever is honest earns, and each rule is needed."""

from __future__ import annotations

import pytest
from benchmarks.economy import answers, committees, honest, leaves
from benchmarks.economy.coalition import TOLERATED, best
from benchmarks.economy.table import Economy, every_coalition, run
from benchmarks.economy.world import CHECK_RATES, demo_world, main_world
from support.sound_classes import deters

from troth.protocol.market import economy

SEED = 12
FEW = 0.01

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> Economy:
    return run(main_world(), SEED, FEW)


def test_every_coalition_loses_everywhere(found: Economy) -> None:
    assert len(found.coalitions) == len(every_coalition()) >= 30
    assert [row.name for row in found.winners] == []


def test_honest_parties_earn_everywhere(found: Economy) -> None:
    assert len(found.parties) == 7
    assert [row.name for row in found.poor] == []


def test_without_a_rule_a_coalition_wins(found: Economy) -> None:
    assert len(found.weakened) == 10
    assert [row.name for row in found.weakened if row.loses] == []


def test_the_small_parameters_hold_at_their_own_share() -> None:
    small = run(demo_world(), SEED, FEW)
    assert [row.name for row in (*small.winners, *small.poor)] == []


@pytest.mark.parametrize("rate", CHECK_RATES)
def test_a_class_for_another_check_rate_deters_too(rate: int) -> None:
    from benchmarks.economy.table import class_for

    world = main_world()
    world = world.at(money=class_for(world, rate), check_rate=rate)
    assert deters(world.penalty, world.g, economy.detection(rate, 6_000, 3, 15))
    assert leaves.false_answer(world) < 0


@pytest.mark.parametrize(
    "name",
    [
        "scheduler and node cheat all of the time",
        "burst of 200 within the lag",
        "twenty addresses of one owner against four honest owners with 80 %",
        "refusing checks that honest seats would reject",
        "framing by a captured k",
        "idle cases by the hundred",
    ],
)
def test_plays_with_real_draws_agree_with_the_exact_sums(name: str) -> None:
    coalition = next(one for one in every_coalition() if one.name == name)
    row = best(coalition, main_world(), seed=SEED, share=0.5)
    assert row.played is not None
    assert len(row.played.values) > 50
    assert row.played.error > 0
    assert row.off < TOLERATED


def test_a_cheat_is_found_as_often_as_the_inequality_says() -> None:
    world = main_world()
    said = economy.detection(world.check_rate, 6_000, 3, 15) / economy.ONE
    # A little more: the cheat's own seat is in no committee.
    assert said < leaves.fate(world).convicted < 1.05 * said


def test_a_smaller_penalty_than_the_inequality_pays_even_where_everybody_brings_rejections() -> None:
    world = honest.with_money(main_world(), penalty=main_world().inequality // 2)
    fate = leaves.fate(main_world())
    assert fate.paid * world.g > fate.convicted * world.penalty
    assert fate.paid * world.g < fate.convicted * world.inequality


def test_nobody_brings_a_rejection_at_a_loss() -> None:
    world = main_world()
    poor = honest.with_money(world, penalty=world.inequality)
    assert leaves.bringing(world) > 0 > leaves.bringing(poor)
    assert leaves.false_answer(poor) == leaves.BOTH.gain(poor)


def test_a_burst_is_void_within_the_lag_and_paid_without_one() -> None:
    world = main_world()
    assert answers.burst_of(world, 10_000) < -world.money.seat / 2
    assert answers.burst_of(honest.with_parameters(world, lag=0), 10_000) > 0


def test_a_lazy_verifier_is_not_counted() -> None:
    world = main_world()
    assert committees.lazy(world, 0.0) < 0 < committees.lazy(world, 0.0, bare=True)
