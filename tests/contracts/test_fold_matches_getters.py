"""Random operations on a real contract; after each, the folded state must equal what the contract's getters say.

The task that each call carries comes from the fold, so a wrong fold also shows as a StateMismatch.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.contract_comparison import compare
from support.contract_parties import (
    MONEY,
    REGISTRY,
    change_endpoint,
    change_payout,
    change_slice,
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
from support.contract_reviews import (
    REVIEWS,
    assign_review,
    close_reviewed,
    commit_review,
    dispute,
    post_review,
    reveal_review,
    settle_reviewed,
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
    settle_promptly,
    settle_without_openings,
)
from support.contract_world import LAYERS, UNIT, Course, World

from troth.protocol.bindings import named
from troth.protocol.calls import views
from troth.protocol.events import TaskSettled
from troth.protocol.identifiers import class_id
from troth.protocol.settlement import Outcome

pytestmark = [pytest.mark.chain, pytest.mark.slow]

OPERATIONS = 80


@pytest.mark.parametrize("world", [Course(1), Course(2), Course(3)], indirect=True)
async def test_fold_equals_getters_after_random_operations(world: World) -> None:
    await compare(world)
    for number in range(OPERATIONS):
        family = world.random.choices([REGISTRY, MONEY, TASKS, REVIEWS], weights=[3, 1, 8, 8])[0]
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
    reviewed = (dispute, commit_review, reveal_review, settle_reviewed)
    courses = [
        (*begin, commit, reveal, reveal, settle_promptly, *reviewed, *reviewed),
        (
            open_and_commit,
            settle_promptly,
            dispute,
            assign_review,
            post_review,
            commit_review,
            settle_reviewed,
            *reviewed,
        ),
        (open_and_commit, settle_promptly, dispute, close_reviewed),
        (*own, reveal, settle),
        (open_task, abort),
        (*begin, post_quorum, seal, reveal, settle),
        (open_and_commit, settle),
        (*begin, close),
        (change_endpoint, change_payout, top_up, withdraw_escrow, register_node, enroll, enroll, enroll, claim),
        (change_slice,) * 4,
        (equivocate, evict, deregister, *(withdraw,) * 6),
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
