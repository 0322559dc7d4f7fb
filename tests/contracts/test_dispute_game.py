"""The game on the real contract: every party's pay is the rules', and captured committees are overturned."""

from __future__ import annotations

import random

import pytest
from benchmarks.disputes.game import WATCHED
from benchmarks.disputes.network import network
from benchmarks.disputes.play import Play
from benchmarks.disputes.rules import CLIENT, Conduct
from benchmarks.disputes.scenarios import Scenario, scenarios, scenes
from benchmarks.disputes.scene import described
from benchmarks.disputes.simulate import predicted, simulate, wave

from troth.protocol.settlement import Outcome

pytestmark = [pytest.mark.chain, pytest.mark.slow]

REVIEWERS, NODES = 5, 12


def check(play: Play) -> None:
    """The contract's movements are those of the rules, for all of the first round; and nothing is made or lost."""
    for party in range(4):
        assert play.units(party) == pytest.approx(predicted(play, party), abs=1e-6), (play.scenario.name, party)
    assert sum(play.moved.values()) == 0
    if play.review is None:
        return
    assert play.result is not None
    reviewers = play.review.progress.parties[1:]
    units = {account: play.moved[account] / play.network.rules.unit for account in reviewers}
    for index, account in enumerate(reviewers):
        in_cluster = play.result.cluster >> index & 1
        assert units[account] == (6 if in_cluster else -2)


@pytest.mark.parametrize("exact", [True, False])
async def test_the_contract_pays_what_the_rules_say(exact: bool) -> None:
    async with network(exact=exact, reviewers=REVIEWERS, nodes=NODES) as built:
        plays = await wave(built, scenarios(0.6) * (3 if exact else 1), random.Random(5), 0)
        assert any(play.result for play in plays)
        assert any(not play.result for play in plays)
        for play in plays:
            check(play)
        for play in await wave(built, scenes(REVIEWERS), random.Random(6), 1 << 20):
            check(play)
            assert len(described(play).rows) == 9


async def test_a_captured_committee_is_overturned_and_slashed() -> None:
    async with network(exact=True, reviewers=REVIEWERS, nodes=NODES) as built:
        every = (Conduct.HOSTILE,) * 3
        majority = (Conduct.HONEST,) * 3 + (Conduct.HOSTILE,) * 2
        cheat = Scenario("m of m", 0.6, False, False, WATCHED, conducts=every, reviewing=majority)
        honest = Scenario("m of m", 0.6, True, True, WATCHED, conducts=every, reviewing=majority)
        accepted, rejected = await wave(built, [cheat, honest], random.Random(1), 0)
    assert accepted.result is not None
    assert rejected.result is not None
    assert (accepted.first.outcome, accepted.result.task_outcome) == (Outcome.ACCEPTED, Outcome.REJECTED)
    # 30 back to the client and 6 to it, 6 to the scheduler, 18 to the reviewers: 15 each, of which 6 had been earned.
    assert [accepted.units(party) for party in range(4)] == [-9, -9, -9, -9]
    assert accepted.units(CLIENT) == 6
    assert (rejected.first.outcome, rejected.result.task_outcome) == (Outcome.REJECTED, Outcome.ACCEPTED)
    # 26 to the inferencer, 6, 18: 50 from three, who had earned 6 each.
    assert [rejected.units(party) for party in range(4)] == pytest.approx([6, 6 - 50 / 3, 6 - 50 / 3, 6 - 50 / 3])


async def test_means_stand_beside_their_exact_values() -> None:
    async with network(exact=True, reviewers=REVIEWERS, nodes=NODES) as built:
        found = await simulate(built, 4, 3, (0.75,), lambda one: one.seat is None)
    assert [one.tasks for one in found] == [4] * 4
    for one in found:
        assert one.worst < 1e-6
        assert one.off < 6
