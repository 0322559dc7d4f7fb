"""A contract's getters against the state that is folded from its events."""

from __future__ import annotations

from support.contract_world import World

from troth.protocol.calls import views
from troth.protocol.contract_types import HostedSlice
from troth.protocol.slots import review_slot, task_slot
from troth.protocol.types import ZERO_HASH


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
        hosted = await read(views.slice_of(person))
        if (node := state.nodes.get(person)) is None:
            assert hosted == HostedSlice(ZERO_HASH, 0, 0, 0)
        else:
            assert hosted == HostedSlice(node.execution_class, node.slice.first, node.slice.end, node.kept_until)
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
