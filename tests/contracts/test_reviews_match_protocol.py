"""Chosen courses of a dispute on a real contract: decision and money are those of the protocol, to the wei.

The operations of ``support.contract_reviews`` compare each bond, draw, decision and movement; the tests here choose the
course and look at who is better off.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.contract_comparison import compare
from support.contract_parties import equivocated
from support.contract_reviews import (
    Place,
    close_reviewed,
    commit_review,
    disputable,
    dispute_by,
    settle_review_with,
)
from support.contract_tasks import assign, commit, new_order
from support.contract_world import UNIT, Course, World

from troth.protocol import calls
from troth.protocol.contract_types import ABSENT, NO_PROOF, Opening
from troth.protocol.events import Credited
from troth.protocol.identifiers import fee
from troth.protocol.review import review_id
from troth.protocol.settlement import BOND, PENALTY, REWARD, Outcome
from troth.protocol.task import Phase
from troth.protocol.types import ZERO_HASH, Address

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ACCEPTED, REJECTED, INDETERMINATE = Outcome.ACCEPTED, Outcome.REJECTED, Outcome.INDETERMINATE


def first_openings(world: World, decided: Outcome, dissenter: bool) -> list[Opening]:
    """One segment's, by three verifiers; ``dissenter``: the first of them says the opposite of the others."""
    root, other = world.fresh("root"), world.fresh("other")
    roots = {ACCEPTED: [root] * 3, REJECTED: [other] * 3, INDETERMINATE: [world.fresh("own") for _ in range(3)]}
    shown = [(one, decided is ACCEPTED) for one in roots[decided]]
    if dissenter:
        shown[0] = (other, False) if decided is ACCEPTED else (root, True)
    return [Opening(root), *(Opening(one, verdict, world.fresh("salt")) for one, verdict in shown)]


async def settled(world: World, *decided: Outcome, dissenter: bool = False) -> Place:
    """A task of as many segments, settled like this; the first segment's place."""
    order, signature = await new_order(world, tuple(range(3 - len(decided), 3)))
    assert await world.run(calls.open_task(order, signature), world.scheduler)
    (key,) = (key for key, _ in world.live(Phase.OPENED))
    made = [one for outcome in decided for one in first_openings(world, outcome, dissenter)]
    world.openings[key] = made
    await assign(world)
    # All post, so that who dissents is there.
    world.random.choice = _no_silence(world.random.choice)  # type: ignore[method-assign]
    await commit(world)
    record = world.follower.state.tasks[key]
    shown = [ABSENT if post == ZERO_HASH else one for one, post in zip(made, record.task.progress.posts, strict=True)]
    assert await world.run(calls.settle(key, record.task, NO_PROOF, shown), world.client)
    record = world.follower.state.tasks[key]
    assert record.settled is not None
    assert record.settled.outcomes == tuple(decided)
    return key, record, 0


def _no_silence(choice: Any) -> Any:
    return lambda options: None if None in options else choice(options)


async def reviewed(world: World, place: Place, *, says: bool | None, absent: frozenset[int] = frozenset()) -> Outcome:
    """The review of a dispute that was made; ``says`` is the reviewers' verdict, None that each has its own."""
    key = review_id(place[0], place[2])
    review = world.follower.state.reviews[key].review
    if says is None:
        shown = [Opening(world.fresh("own"), False, world.fresh("salt")) for _ in range(5)]
        world.openings[key] = [Opening(review.progress.posts[0]), *shown]
    else:
        root = review.progress.posts[0] if says else world.fresh("seen")
        shown = [Opening(root, says, world.fresh("salt")) for _ in range(5)]
        world.openings[key] = [Opening(review.progress.posts[0]), *shown]
    await commit_review(world)
    await settle_review_with(world, key, set(absent))
    await compare(world)
    outcome = world.follower.state.reviews[key].outcome
    assert outcome is not None
    return outcome


def wealth(world: World, operator: str) -> int:
    account = world.follower.state.account(Address(operator))
    return account.stake + account.credit + world.follower.state.escrow_of(Address(operator))


def key_of(world: World, who: str, place: Place) -> Any:
    _, record, segment = place
    parties = record.task.parties_of(segment)
    if who == "client":
        return world.client
    return world.keys[parties[0] if who == "inferencer" else record.task.verifiers_of(segment)[0]]


@pytest.mark.parametrize("world", [Course(21)], indirect=True)
@pytest.mark.parametrize(
    ("first", "dissenter", "who"),
    [
        (REJECTED, False, "inferencer"),
        (REJECTED, True, "inferencer"),
        (REJECTED, True, "verifier"),
        (REJECTED, False, "client"),
        (ACCEPTED, True, "verifier"),
        (ACCEPTED, False, "client"),
        (ACCEPTED, False, "inferencer"),
        (INDETERMINATE, False, "client"),
        (INDETERMINATE, True, "inferencer"),
    ],
)
async def test_every_first_outcome_upheld_overturned_and_undecided(
    world: World, first: Outcome, dissenter: bool, who: str
) -> None:
    for says, expected in ((True, ACCEPTED), (False, REJECTED), (None, INDETERMINATE)):
        place = await settled(world, first, dissenter=dissenter)
        key = key_of(world, who, place)
        if who != "client":
            assert await world.run(calls.top_up(key.address, 300 * UNIT), world.owner)
        if who == "inferencer" and first is ACCEPTED:  # No outcome pays it, so it disputes like a stranger.
            assert await world.run(calls.deposit(key.address, 60 * UNIT), world.owner)
        before = wealth(world, key.address)
        assert await dispute_by(world, place, key)
        await compare(world)
        assert await reviewed(world, place, says=says) is expected
        after = wealth(world, key.address)
        if who == "inferencer" and expected is REJECTED is not first:
            assert after < before
        elif expected is INDETERMINATE or first is INDETERMINATE:
            assert after >= before
        elif expected is first:
            earned = REWARD if _is_reviewer(world, place, key) else 0
            assert before - after == (BOND + REWARD * 5 - earned) * UNIT
        else:
            assert after >= before + REWARD * UNIT
        task = world.follower.state.tasks[place[0]]
        assert task.outcome is (first if expected is INDETERMINATE else expected)


def _is_reviewer(world: World, place: Place, key: Any) -> bool:
    return key.address in world.follower.state.reviews[review_id(place[0], place[2])].review.verifiers_of(0)


@pytest.mark.parametrize("world", [Course(23)], indirect=True)
async def test_a_captured_committee_is_overturned_and_pays_everything(world: World) -> None:
    """All three verifiers rejected an honest inferencer: it ends where an accepted task would have left it."""
    free = wealth(world, world.client.address)
    place = await settled(world, REJECTED)
    _, record, _ = place
    inferencer, liars = record.task.parties_of(0)[0], record.task.verifiers_of(0)
    assert await dispute_by(world, place, world.keys[inferencer])
    start = {name: wealth(world, name) + BOND * UNIT * (name == inferencer) for name in (inferencer, *liars)}
    assert await reviewed(world, place, says=True) is ACCEPTED
    # It was slashed 2 + 3 * 6 units when it was rejected.
    assert wealth(world, inferencer) - start[inferencer] == (PENALTY + REWARD * 3 + REWARD) * UNIT
    assert all(start[liar] - wealth(world, liar) >= (REWARD + PENALTY) * UNIT for liar in liars)
    assert wealth(world, world.client.address) == free


@pytest.mark.parametrize("world", [Course(24)], indirect=True)
async def test_an_accepted_lie_is_refunded_once(world: World) -> None:
    """Both segments were accepted and both fall: the client gets back what the task cost, once."""
    free = wealth(world, world.client.address)
    place = await settled(world, ACCEPTED, ACCEPTED)
    assert free - wealth(world, world.client.address) == fee(world.execution_class, 2)
    places = [place, (*place[:2], 1)]
    for second in places:
        assert await dispute_by(world, second, world.client)
        assert await reviewed(world, second, says=False) is REJECTED
    # Refunded once; and 6 units for each of two right disputes, as credit.
    assert world.follower.state.escrow_of(world.client.address) == free
    assert world.follower.state.account(world.client.address).credit == 2 * REWARD * UNIT
    assert world.follower.state.tasks[place[0]].outcome is REJECTED


@pytest.mark.parametrize("world", [Course(25)], indirect=True)
async def test_a_task_is_accepted_once_the_last_of_its_segments_is(world: World) -> None:
    place = await settled(world, REJECTED, INDETERMINATE)
    assert place[1].outcome is REJECTED
    for segment, outcome in ((0, REJECTED), (1, ACCEPTED)):
        second = (place[0], place[1], segment)
        assert await dispute_by(world, second, world.client)
        assert await reviewed(world, second, says=True) is ACCEPTED
        assert world.follower.state.tasks[place[0]].outcome is outcome


@pytest.mark.parametrize("world", [Course(26)], indirect=True)
async def test_silent_reviewers_and_a_silent_inferencer(world: World) -> None:
    for first, absent, expected in (
        (ACCEPTED, {1, 2}, ACCEPTED),
        (ACCEPTED, {1, 2, 3, 4}, INDETERMINATE),
        (ACCEPTED, {0}, REJECTED),
        (REJECTED, {0, 1, 2, 3}, REJECTED),
    ):
        place = await settled(world, first)
        assert await dispute_by(world, place, world.client)
        assert await reviewed(world, place, says=True, absent=frozenset(absent)) is expected


@pytest.mark.parametrize("world", [Course(27)], indirect=True)
async def test_a_segment_is_disputed_once_in_time_and_only_where_there_is_something_to_dispute(world: World) -> None:
    place = await settled(world, ACCEPTED, REJECTED)
    assert [segment for _, _, segment in disputable(world)] == [1]
    assert not await dispute_by(world, place, world.client)
    second = (place[0], place[1], 1)
    assert await dispute_by(world, second, world.client)
    assert not await dispute_by(world, second, world.client)
    await close_reviewed(world)
    assert not await dispute_by(world, second, world.client)
    late = await settled(world, REJECTED)
    world.deployed.anvil.mine(world.deployed.parameters.dispute_window)
    assert not await dispute_by(world, late, world.client)
    refused = {name.split(": ")[1] for name in world.refused}
    assert {"NotDisputable", "AlreadyDisputed", "TooLate"} <= refused
    await compare(world)


@pytest.mark.parametrize("world", [Course(28)], indirect=True)
async def test_a_bond_returns_to_who_has_left_as_credit(world: World) -> None:
    """A party that withdraws while its dispute lives gets the bond nonetheless."""
    place = await settled(world, REJECTED)
    inferencer = place[1].task.parties_of(0)[0]
    assert await world.run(calls.deregister(inferencer), world.owner)
    assert await dispute_by(world, place, world.keys[inferencer])
    world.deployed.anvil.mine(world.deployed.parameters.unbonding_period)
    assert await world.run(calls.withdraw(inferencer), world.client)
    assert wealth(world, inferencer) == 0
    await close_reviewed(world)
    await compare(world)
    # The bond, and what the silent scheduler was slashed.
    assert wealth(world, inferencer) == (BOND + 28) * UNIT


@pytest.mark.parametrize("world", [Course(29)], indirect=True)
async def test_losers_without_stake_leave_dues_that_shrink_in_proportion(world: World) -> None:
    """Rounding as in the contract, where what is there does not divide."""
    place = await settled(world, REJECTED)
    assert await dispute_by(world, place, world.client)
    for liar in place[1].task.verifiers_of(0)[1:]:
        await equivocated(world, world.keys[liar])
        assert world.follower.state.account(liar).stake == 0
    assert await reviewed(world, place, says=True) is ACCEPTED
    record = world.follower.state.reviews[review_id(place[0], 0)]
    paid = [event.amount for event in record.events if isinstance(event, Credited)]
    assert any(amount % UNIT for amount in paid)
