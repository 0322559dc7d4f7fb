"""Random operations on a real contract; after each, the folded state must equal what the contract's getters say.

The task that each call carries comes from the fold, so a wrong fold also shows as a StateMismatch.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from support.contract_parties import (
    MONEY,
    REGISTRY,
    build,
    change_endpoint,
    change_payout,
    claim,
    deregister,
    enroll,
    equivocate,
    evict,
    register_node,
    top_up,
    withdraw,
    withdraw_escrow,
)
from support.contract_tasks import (
    TASKS,
    abort,
    assign,
    close,
    close_committed,
    commit,
    open_and_commit,
    open_task,
    post_own,
    post_quorum,
    reveal,
    sample,
    seal,
    settle,
    settle_without_openings,
)
from support.contract_world import LAYERS, UNIT, Course, World

from troth.chain.follower import EventFollower
from troth.protocol.bindings import named
from troth.protocol.calls import views
from troth.protocol.events import TaskSettled
from troth.protocol.identifiers import class_id, model_id
from troth.protocol.settlement import Outcome
from troth.protocol.slots import review_slot, task_slot
from troth.protocol.types import (
    ZERO_HASH,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
)

pytestmark = [pytest.mark.chain, pytest.mark.slow]

OPERATIONS = 60


async def compare(world: World) -> None:
    """Every getter against the fold, at the followed block, and memberships at a past block too."""
    state, block, read = await world.follower.catch_up(), world.follower.block, world.chain.read
    assert block == await world.chain.block_number()
    people = {*state.accounts, *state.nodes, *state.schedulers, world.client.address, world.owner.address}
    for person in people:
        assert state.account(person) == await read(views.account_of(person))
        assert state.escrow_of(person) == await read(views.escrow_of(person))
        party = state.nodes.get(person) or state.schedulers.get(person)
        if party is not None:
            assert party.owner == await read(views.owner_of(person))
            assert party.payout == await read(views.payout_of(person))
    for key, group in state.groups.items():
        for height in (block + 1, block, world.random.randint(max(0, block - 30), block), 0):
            assert group.size_at(height) == await read(views.group_size_at(key, height))
            for slot, member in enumerate(group.members_at(height)):
                assert (member or "0x" + "00" * 20) == await read(views.member_at(key, slot, height))
    for key, record in state.tasks.items():
        assert task_slot(record) == await read(views.task_state(key))
        assert record.outcome == await read(views.outcome_of(key))
    for key, review in state.reviews.items():
        assert review_slot(review) == await read(views.task_state(key))
    assert state.held() == await world.chain.balance(world.chain.contract)


@pytest.fixture
async def world(request: pytest.FixtureRequest, deployed: Any) -> Any:
    course = getattr(request, "param", Course())
    descriptor = ModelDescriptor("llama/a/b", LAYERS, 64, 100, 0, Hash32(b"\x01" * 32))
    execution_class = ExecutionClass(
        model=model_id(descriptor),
        name="float32",
        dtype=0,
        exact=course.exact,
        mantissa_bits=10,
        steps=8,
        theta=9000,
        tiles=0 if course.exact else 1,
        candidates=2,
        verifiers=3,
        reviewers=5,
        unit=UNIT,
        minimum_stake=UNIT * 78,
        state_cut=1000,
        margin_cut=20_000,
        calibration=ZERO_HASH,
    )
    follower = EventFollower(deployed.chain, start_block=deployed.block)
    made = World(deployed, follower, random.Random(course.seed), execution_class, b"\x05" * 32)
    await build(made, descriptor)
    yield made
    await follower.close()


@pytest.mark.parametrize("world", [Course(1), Course(2), Course(3)], indirect=True)
async def test_fold_equals_getters_after_random_operations(world: World) -> None:
    await compare(world)
    for number in range(OPERATIONS):
        family = world.random.choices([REGISTRY, MONEY, TASKS], weights=[3, 1, 8])[0]
        await world.random.choice(family)(world)
        if number % 5 == 0:
            await compare(world)
    await compare(world)
    assert sum(world.done.values()) > OPERATIONS // 2, (world.done, world.refused)


@pytest.mark.parametrize("world", [Course(4)], indirect=True)
async def test_every_kind_of_call_keeps_fold_and_getters_equal(world: World) -> None:
    """The same comparison on a fixed course, so that no call is left to chance."""
    rules = await world.chain.read(views.rules_of(class_id(world.execution_class)))
    assert (rules.unit, rules.layers, rules.candidates, rules.verifiers) == (UNIT, LAYERS, 2, 3)
    begin = (open_task, assign)
    own = (*begin, *(post_own,) * 8)
    courses = [
        (*begin, commit, reveal, reveal, settle),
        (*own, reveal, settle),
        (open_task, abort),
        (*begin, post_quorum, seal, reveal, settle),
        (open_and_commit, settle),
        (*begin, close),
        (change_endpoint, change_payout, top_up, withdraw_escrow, register_node, enroll, enroll, enroll, claim),
        (equivocate, evict, deregister, withdraw, withdraw),
    ]
    for course in courses:
        for operation in course:
            await operation(world)
            await compare(world)
    transactions = {entry.name for entry in named("function").values() if not entry.outputs}
    missing = transactions - set(world.done) - {"sample"}  # Exact classes are not sampled; the next test does.
    assert not missing, world.refused


@pytest.mark.parametrize("world", [Course(5, exact=False)], indirect=True)
async def test_tolerant_tasks_are_sampled(world: World) -> None:
    for course in ((open_task, assign, commit, sample, settle_without_openings), (open_and_commit, close_committed)):
        for operation in course:
            await operation(world)
            await compare(world)
    assert not world.refused
    outcomes = Counter(record.outcome for record in world.follower.state.tasks.values())
    assert outcomes == {Outcome.REJECTED: 1, Outcome.EXPIRED: 1}


async def test_settled_tasks_have_an_outcome_and_their_movements(world: World) -> None:
    for _ in range(3):
        await open_task(world)
        await assign(world)
        await commit(world)
        await settle(world)
    settled = [record for record in world.follower.state.tasks.values() if record.outcome]
    assert settled
    for record in settled:
        final = [event for event in record.events if isinstance(event, TaskSettled)]
        assert [event.outcome for event in final] == [record.outcome]
        assert final[0].outcome in (Outcome.ACCEPTED, Outcome.REJECTED, Outcome.INDETERMINATE)
        assert len(record.events) >= 5
    await compare(world)
