"""The game of disputes: pay against sums done by hand, expectations against listing every case."""

from __future__ import annotations

import math
from itertools import product

import pytest
from benchmarks.capture.attack import Attack, drawn
from benchmarks.disputes.example import Example
from benchmarks.disputes.game import (
    EVERYBODY,
    NOBODY,
    PARTIES,
    WATCHED,
    Policy,
    Seat,
    World,
    deviation,
    inferencer_lottery,
    inferencer_pay,
    mean,
    verdict,
    verifier_lottery,
    verifier_pay,
    who_disputes,
)
from benchmarks.disputes.replies import (
    client_gain,
    coalition_gain,
    inferencer,
    inferencer_gain,
    reviewer,
    reviewer_pay,
    verifier,
    verifier_gain,
    where_it_pays,
)
from benchmarks.disputes.rules import CLIENT, Conduct, Prize, first_round, review_by_votes, review_pay
from benchmarks.disputes.strategies import COMMITTEES, SHARES, sensible
from benchmarks.disputes.tables import tables
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.settlement import Outcome

YES, NO = Outcome.ACCEPTED, Outcome.REJECTED
H, A, S, Y, N = (Conduct.HONEST, Conduct.HOSTILE, Conduct.SILENT, Conduct.ALWAYS_YES, Conduct.ALWAYS_NO)
VOTERS = st.sampled_from(list(Conduct))


@pytest.mark.parametrize(
    ("honest", "conducts", "outcome", "pay"),
    [
        (True, (H, H, H), YES, (6, 6, 6, 6)),
        (True, (H, H, A), YES, (6, 6, 6, -2)),
        (True, (H, A, A), NO, (-14, -2, 6, 6)),
        (True, (A, A, A), NO, (-20, 6, 6, 6)),
        (False, (H, H, H), NO, (-20, 6, 6, 6)),
        (False, (H, A, A), YES, (6, -2, 6, 6)),
        (True, (H, A, S), Outcome.INDETERMINATE, (0, 0, 0, 0)),
        (True, (H, H, Y), YES, (6, 6, 6, -2)),
        (False, (H, H, N), NO, (-14, 6, 6, -2)),
        (True, (H, H, Conduct.WITHHOLDS), YES, (6, 6, 6, -2)),
        (False, (H, Conduct.SIDES, A), YES, (6, -2, 6, 6)),
    ],
)
def test_first_rounds_pay_what_was_worked_out_by_hand(
    honest: bool, conducts: tuple[Conduct, ...], outcome: Outcome, pay: tuple[int, ...]
) -> None:
    first = first_round(honest, conducts)
    assert (first.outcome, first.pay) == (outcome, pay)


@pytest.mark.parametrize(
    ("honest", "conducts", "second", "cluster", "disputer", "pay", "client"),
    [
        # 30 back to the client, 6 to it, 6 to the scheduler, 72 to twelve reviewers: 114 from four.
        (False, (A, A, A), NO, 12, CLIENT, (-28.5,) * 4, 6),
        # 24 back, 6, 72, and 8 for the one who was right: 110 from three.
        (False, (H, A, A), NO, 12, 1, (-110 / 3, 8, -110 / 3, -110 / 3), 0),
        # 6, 72, and to the inferencer its 8 and three bounties of 6: 104 from three.
        (True, (A, A, A), YES, 12, 0, (26, -104 / 3, -104 / 3, -104 / 3), 0),
        # 8 and two bounties of 6, 8 for the verifier who was right: 106 from two.
        (True, (H, A, A), YES, 12, 0, (20, 8, -53, -53), 0),
        # The bond of 8 and 6 for each of twelve.
        (False, (H, H, H), NO, 12, 0, (-80, 0, 0, 0), 0),
        (True, (H, H, A), YES, 12, 3, (0, 0, 0, -80), 0),
        (True, (H, H, H), YES, 12, CLIENT, (0, 0, 0, 0), -80),
        # Undecided: 6 to scheduler, inferencer and the right verifier, 72: all from the one that was wrong.
        (True, (H, A, S), YES, 12, None, (6, 6, -90, 0), 0),
        (True, (H, A, S), Outcome.INDETERMINATE, 0, None, (0, 0, 0, 0), 0),
    ],
)
def test_reviews_pay_what_was_worked_out_by_hand(
    honest: bool,
    conducts: tuple[Conduct, ...],
    second: Outcome,
    cluster: int,
    disputer: int | None,
    pay: tuple[float, ...],
    client: float,
) -> None:
    first = first_round(honest, conducts)
    found, paid = review_pay(first, second, cluster, disputer)
    assert found == pytest.approx(pay)
    assert paid == pytest.approx(client)


def test_a_decided_round_is_not_reviewed_unasked() -> None:
    with pytest.raises(ValueError, match="disputes it"):
        review_pay(first_round(True, (H, H, H)), YES, 3, None)


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("right", range(6))
def test_a_count_of_honest_reviewers_decides_as_their_votes_do(honest: bool, right: int) -> None:
    assert verdict(honest, right, 5) == review_by_votes(honest, (H,) * right + (A,) * (5 - right))


@given(st.booleans(), st.tuples(VOTERS, VOTERS, VOTERS), st.sampled_from([YES, NO]), st.integers(3, 31), st.data())
def test_a_review_pays_no_more_than_it_takes(
    honest: bool, conducts: tuple[Conduct, ...], second: Outcome, cluster: int, data: st.DataObject
) -> None:
    first = first_round(honest, conducts)
    undecided = first.outcome is Outcome.INDETERMINATE
    disputer = None if undecided else data.draw(st.sampled_from([CLIENT, 0, 1, 2, 3]))
    pay, client = review_pay(first, second, cluster, disputer)
    wrong = any(units < 0 for units in (*pay, client))
    others = 6 + 6 * cluster if wrong else 0
    refund = 6 * (2 + first.cluster) if first.outcome is YES and second is NO else 0
    assert math.fsum((*pay, client)) + others + (refund if wrong else 0) <= 1e-9, "the rest goes to the reserve"


@pytest.mark.parametrize("members", COMMITTEES)
def test_the_least_stake_covers_the_dearest_task(members: int) -> None:
    least = (2 + 6 * 3) * 2 + 8 + 6 * members
    for honest, conducts, second in product((True, False), product(Conduct, repeat=3), (YES, NO)):
        first = first_round(honest, conducts)
        disputers = [None] if first.outcome is Outcome.INDETERMINATE else [CLIENT, 0, 1, 2, 3]
        for disputer in disputers:
            pay, _ = review_pay(first, second, members, disputer)
            assert all(before + after >= -least for before, after in zip(first.pay, pay, strict=True))


def _listed(world: World, honest: bool, disputing: bool) -> float:
    """Every first committee and every review, one by one."""
    total = 0.0
    for votes in product((H, A), repeat=3):
        first = first_round(honest, votes)
        chance = math.prod(world.honest if one is H else 1 - world.honest for one in votes)
        flags = [world.policy.verifier if one is H else world.policy.hostile for one in votes]
        disputer = who_disputes(first, disputing, flags, world.policy.client and not honest)
        if disputer is None:
            total += chance * first.pay[0]
            continue
        for reviewing in product((H, A), repeat=world.reviewers):
            weight = math.prod(world.honest if one is H else 1 - world.honest for one in reviewing)
            pay, _ = review_pay(first, *review_by_votes(honest, reviewing), disputer)
            total += chance * weight * (first.pay[0] + pay[0])
    return total


@pytest.mark.parametrize("policy", [NOBODY, PARTIES, WATCHED, EVERYBODY])
@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("disputing", [True, False])
def test_an_inferencers_expectation_is_that_of_listing_every_case(
    policy: Policy, honest: bool, disputing: bool
) -> None:
    world = World(0.6, 5, policy)
    expected = _listed(world, honest, disputing)
    assert inferencer_pay(world, honest=honest, disputing=disputing) == pytest.approx(expected)


def test_among_honest_nodes_only_everything_is_certain() -> None:
    world = World(1.0, 15)
    assert inferencer_pay(world, honest=True, disputing=True) == 6
    assert inferencer_pay(world, honest=False, disputing=False) == -20
    assert inferencer_pay(world, honest=False, disputing=True) == -20 - 8 - 6 * 15
    assert verifier_pay(world, Seat(H, True), inferencer_honest=False) == 6
    assert verifier_pay(world, Seat(Y, True), inferencer_honest=False) == -2
    assert reviewer_pay(world, H) == 6
    assert reviewer_pay(world, A) == -2
    assert reviewer_pay(world, S) == 0


def test_a_verifier_in_a_world_without_reviews_is_paid_by_its_majority() -> None:
    # Honest with r = 0.6: in the minority where both others attack, 0.16.
    world = World(0.6, 5, NOBODY)
    expected = 0.84 * 6 - 0.16 * 2
    assert verifier_pay(world, Seat(H, False), inferencer_honest=True) == pytest.approx(expected)
    lottery = verifier_lottery(world, Seat(H, False), inferencer_honest=True)
    assert deviation(lottery) == pytest.approx(8 * math.sqrt(0.84 * 0.16))


@given(st.sampled_from(SHARES), st.sampled_from(COMMITTEES), st.booleans(), st.booleans())
def test_chances_add_up_to_one(share: float, members: int, honest: bool, disputing: bool) -> None:
    lottery = inferencer_lottery(World(share, members), honest=honest, disputing=disputing)
    assert math.fsum(chance for chance, _ in lottery) == pytest.approx(1)
    assert mean(lottery) == pytest.approx(inferencer_pay(World(share, members), honest=honest, disputing=disputing))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("members", COMMITTEES)
def test_honesty_is_the_best_reply(share: float, members: int) -> None:
    for world in (World(share, members, NOBODY), sensible(share, members), World(share, members, EVERYBODY)):
        assert inferencer(world).lead > 3
    assert verifier(World(share, members, NOBODY)).lead > 0.3
    assert verifier(sensible(share, members)).lead > 0.3
    assert reviewer(World(share, members)).lead > 1


@pytest.mark.parametrize("members", COMMITTEES)
def test_where_all_dispute_all_the_time_silence_is_better_at_a_bare_majority(members: int) -> None:
    assert verifier(World(0.55, members, EVERYBODY)).lead < 0
    assert verifier(World(0.60, members, EVERYBODY)).lead > 0


def test_where_the_built_rule_makes_a_right_dispute_too_dear() -> None:
    dear = [
        (share, members)
        for share in SHARES
        for members in COMMITTEES
        if inferencer_gain(World(share, members), honest=True) <= 0
    ]
    assert dear == [(0.55, 9), (0.55, 15), (0.55, 31)]
    assert [share for share in SHARES if verifier_gain(World(share, 15)) <= 0] == [0.55, 0.60]
    assert client_gain(World(0.55, 31)) < 0 < client_gain(World(0.55, 15))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("members", COMMITTEES)
def test_no_wrong_dispute_pays_as_built(share: float, members: int) -> None:
    world = World(share, members)
    assert inferencer_gain(world, honest=False) < 0
    assert coalition_gain(world) < 0
    policy = where_it_pays(world)
    assert not policy.cheat
    assert not policy.hostile


@pytest.mark.parametrize("share", SHARES)
def test_a_prize_as_large_as_the_risk_makes_right_disputes_pay_from_nine_reviewers_on(share: float) -> None:
    for members in COMMITTEES[1:]:
        world = World(share, members, NOBODY, Prize.AS_RISKED)
        assert min(inferencer_gain(world, honest=True), verifier_gain(world)) > 0
        assert inferencer_gain(world, honest=False) < 0


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("members", COMMITTEES)
def test_a_prize_for_others_than_the_inferencer_makes_honest_serving_pay_everywhere(share: float, members: int) -> None:
    world = World(share, members, NOBODY, Prize.VERIFIERS)
    assert verifier_gain(world) > 0
    assert inferencer_gain(world, honest=False) < 0
    there = sensible(share, members, Prize.VERIFIERS)
    assert min(inferencer(there).best_honest, inferencer(there).lead, verifier(there).lead) > 0
    # Small reviews at a bare majority are too weak for it: attackers would gain together by disputing the honest.
    assert (coalition_gain(world) > 0) == (share == 0.55 and members in {5, 9})


def test_the_bond_alone_lets_a_cheat_gain_by_disputing_at_a_bare_majority() -> None:
    assert inferencer_gain(World(0.55, 15, NOBODY, Prize.BOND_ONLY), honest=False) > 0
    assert inferencer_gain(World(0.65, 15, NOBODY, Prize.BOND_ONLY), honest=False) < 0


def test_the_papers_example() -> None:
    sure = Example(1.0, 15)
    assert sure.inferencer(honest=True, disputing=True) == 6
    assert sure.inferencer(honest=False, disputing=True) == -10
    assert sure.inferencer(honest=False, disputing=False) == -2
    assert (sure.lead, sure.verifier_lead, sure.committee_bill, sure.shortfall) == (8, 8, 90, 80)
    # A dispute moves 16 units, of which 8 are at stake: it pays exactly above one half.
    half = Example(0.5, 5)
    assert half.gain(honest=True) == pytest.approx(0)
    even = Example(0.6, 5)
    assert even.gain(honest=True) == pytest.approx(16 * even.second_right - 8)


def test_nine_nodes_of_whom_four_attack() -> None:
    # The cheat is one of them; three of the other eight are its friends, and the last five review.
    chances = {taken: ways / 56 for taken, ways in enumerate((10, 30, 15, 1))}
    assert dict(drawn(8, 3, 3)) == pytest.approx(chances)
    assert Attack(9, 4, 5, NOBODY).cheat_stands == pytest.approx(16 / 56)
    assert Attack(9, 4, 5, PARTIES).cheat_stands == pytest.approx(1 / 56)
    assert Attack(9, 4, 5, WATCHED).cheat_stands == 0
    # No friend -20; one -14 - 2; two 3 x 6; three 4 x 6.
    alone = (10 * -20 + 30 * -16 + 15 * 18 + 1 * 24) / 56
    assert Attack(9, 4, 5, NOBODY).cheat_units == pytest.approx(alone)
    # With the client: two friends, one reviews: 24 + 6 + 24 + 8 from three; three friends: 30 + 6 + 30 + 6 from four.
    watched = (10 * -20 + 30 * -16 + 15 * (18 - 62 - 2) + 1 * (24 - 72)) / 56
    assert Attack(9, 4, 5, WATCHED).cheat_units == pytest.approx(watched)


def test_tables_are_whole() -> None:
    for table in tables():
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
