"""What epochs add up to about a node, and members that missed some of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import Anvil
from support.rating_epochs import MEMBERS, WORTH, epoch, second_epoch
from support.rating_stage import RatingStage

from troth.committee.errors import RequestRefused
from troth.committee.rating.evidence import NOTHING_YET, SURE, UNKNOWN
from troth.committee.rating.member import encode_message
from troth.protocol.types import ZERO_HASH

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@pytest.fixture
async def stage(anvil: Anvil, tmp_path: Path) -> AsyncIterator[RatingStage]:
    async with second_epoch(anvil, tmp_path) as stage:
        yield stage


async def test_what_is_off_a_little_in_each_epoch_adds_up_until_it_halves_the_credit(stage: RatingStage) -> None:
    node, seen = stage.market.nodes[0], []
    stage.market.off[node] = 6.6
    for number in range(2, 7):
        await stage.to(number, 0.01 if number > 2 else 0.02)
        await epoch(stage, number)
        assert stage.through() == number + 1, stage.refusals
        seen.append(stage.credits()[node])
    assert seen == [WORTH[0]] * 2 + [WORTH[0] // 2] * 3
    assert [stage.credits()[one] for one in stage.market.nodes[1:]] == list(WORTH[1:])
    # It repents, and is forgiven after as many epochs as evidence is remembered.
    stage.market.off[node] = -4.0
    for number in range(7, 10):
        await stage.to(number, 0.0)
        await epoch(stage, number)
    assert stage.credits()[node] == WORTH[0]


async def test_a_member_that_missed_an_epoch_signs_what_the_others_know(stage: RatingStage) -> None:
    node = stage.market.nodes[0]
    stage.market.off[node] = 30.0
    first, last = await stage.leader(), stage.last_leader()
    missing = next(one for one in stage.members if one not in {first, last})
    stage.kill(missing)
    await epoch(stage, 2)
    assert stage.credits()[node] == WORTH[0] // 2
    stage.start(missing)
    rater = stage.members[missing].rater
    assert rater is not None
    number = 3
    await stage.to(number, 0.0)
    while missing in {await stage.leader(), await stage.leader(by_seed=True)}:
        # Here it only signs. Leading is a test by itself.
        await epoch(stage, number)
        number += 1
        await stage.to(number, 0.0)
    stage.market.off[node] = 1.0
    assert rater.known(await stage.clock.moment()).judged < SURE
    await epoch(stage, number)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    seen = (settled.epoch, settled.signers, stage.credits()[node])
    assert seen == (number, MEMBERS, WORTH[0] // 2), "\n".join(stage.refusals)


@pytest.mark.parametrize("lie", [False, True], ids=["honest", "one lies"])
async def test_a_member_that_missed_updates_leads_with_what_the_others_tell_it(stage: RatingStage, lie: bool) -> None:
    """It asks for the list, which the chain's hash proves, and for what epochs added up to, which others check."""
    node, number, updates = stage.market.nodes[0], 2, 0
    stage.market.off[node] = 7.0
    first = await stage.leader()
    missing = next(one for one in stage.members if one not in {first, stage.last_leader()})
    stage.kill(missing)
    # Until epochs have added up, and the next one has a list and is for this member to lead.
    while updates < 4 or await stage.leader() != missing or (await stage.clock.moment()).now.fixed == ZERO_HASH:
        await epoch(stage, number)
        updates += stage.through() > number
        number += 1
        await stage.to(number, 0.0)
    liar = stage.members[next(one for one in stage.members if one not in {missing, stage.last_leader()})].rater
    assert liar is not None
    if lie:
        liar.listed = lambda digest: b'{"nodes": []}'  # type: ignore[method-assign]
        liar.added_up = lambda digest: encode_message(NOTHING_YET)  # type: ignore[method-assign]
    rater = stage.start(missing).rater
    assert rater is not None
    moment = await stage.clock.moment()
    assert (rater.fixed(moment), rater.known(moment)) == (None, UNKNOWN)
    stage.market.off[node] = 1.0
    await epoch(stage, number)
    settled = stage.clock.follower.state.settled
    assert settled is not None
    # Its own answers of one epoch say nothing against the node. What it was told does, and the others agree.
    found = (settled.epoch, settled.leader, settled.drawn, settled.signers, stage.credits()[node])
    assert found == (number, missing, True, MEMBERS, WORTH[0] // 2), "\n".join(stage.refusals)
    await stage.to(number + 1, 0.0)
    assert rater.known(await stage.clock.moment()).judged == 1
    # It was told by others, so it tells nobody: one lie would be as many members' word.
    with pytest.raises(RequestRefused, match="missed an epoch, too"):
        rater.added_up(settled.digest)
