"""What parties do with their registrations and their money, on a real contract; what to do it to is drawn."""

from __future__ import annotations

from support.contract_world import LAYERS, SEGMENTS, UNIT, World

from troth.chain.keystore import Key
from troth.protocol import calls, vrf
from troth.protocol.contract_types import (
    NodeRegistration,
    SchedulerRegistration,
)
from troth.protocol.identifiers import class_id, fee, group_id
from troth.protocol.typed_data import sign
from troth.protocol.types import (
    ZERO_HASH,
    Consent,
    ModelDescriptor,
    Row,
    Segment,
)


async def register_node(world: World) -> None:
    key = Key.from_secret(world.fresh("operator"))
    world.deployed.anvil.fund(key)
    world.keys[key.address] = key
    registration = NodeRegistration(
        operator=key.address,
        payout=world.deployed.anvil.keys[4].address,
        execution_class=class_id(world.execution_class),
        first=0,
        end=LAYERS,
        segments=tuple(world.random.sample(SEGMENTS, world.random.randint(2, 3))),
        endpoint=f"https://node-{world.count}.example",
        tls_key_hash=world.fresh("tls"),
    )
    consent = sign(Consent(world.owner.address, key.address), world.chain.domain, key.secret)
    stake = world.execution_class.minimum_stake + world.random.choice([0, 1, UNIT])
    await world.run(calls.register_node(registration, consent, stake), world.owner)


async def enroll(world: World) -> None:
    """A node joins a group that it is not in; now and then one that it is in."""
    state, block = world.follower.state, world.follower.block
    segment = world.random.choice(SEGMENTS)
    group = state.groups.get(group_id(class_id(world.execution_class), segment))
    members = group.members_at(block + 1) if group else []
    outside = [name for name in state.nodes if name not in members and not state.account(name).exit_block]
    joining = world.random.choice(outside) if outside else world.operator().address
    await world.run(calls.enroll(joining, segment.first, segment.end), world.owner)


async def change_slice(world: World) -> None:
    """A node moves to other layers, or the same; now and then one that moved a moment ago, or has too little stake."""
    state, block = world.follower.state, world.follower.block
    kept = [node.kept_until for node in state.nodes.values() if node.kept_until > block]
    if kept and world.random.random() < 0.3:
        world.deployed.anvil.mine(min(kept) - block)
    hosted = Segment(*sorted(world.random.sample(range(LAYERS + 1), 2)))
    inside = [one for one in SEGMENTS if hosted.first <= one.first and one.end <= hosted.end]
    segments = tuple(world.random.sample(inside, world.random.randint(1, len(inside)))) if inside else (hosted,)
    key = world.operator()
    sender = world.owner if world.random.random() < 0.5 else key
    await world.run(calls.change_slice(key.address, hosted, segments), sender)


async def change_endpoint(world: World) -> None:
    key = world.operator()
    await world.run(calls.set_endpoint(key.address, "https://moved.example", world.fresh("tls")), key)


async def change_payout(world: World) -> None:
    payout = world.random.choice(world.deployed.anvil.keys).address
    await world.run(calls.set_payout(world.operator().address, payout), world.owner)


async def top_up(world: World) -> None:
    await world.run(calls.top_up(world.operator().address, world.random.randint(1, UNIT)), world.client)


async def deregister(world: World) -> None:
    await world.run(calls.deregister(world.operator().address), world.owner)


async def withdraw(world: World) -> None:
    leaving = [key for key, account in world.follower.state.accounts.items() if account.exit_block]
    if leaving:
        if world.random.random() < 0.5:
            world.deployed.anvil.mine(world.deployed.parameters.unbonding_period)
        await world.run(calls.withdraw(world.random.choice(leaving)), world.client)


async def claim(world: World) -> None:
    richest = [key for key, account in world.follower.state.accounts.items() if account.credit]
    if richest:
        await world.run(calls.claim(world.random.choice(richest)), world.client)


async def evict(world: World) -> None:
    accounts = world.follower.state.accounts
    minimum = world.execution_class.minimum_stake
    poor = [key for key in world.follower.state.nodes if key in accounts and accounts[key].stake < minimum]
    if poor:
        await world.run(calls.evict(world.random.choice(poor)), world.client)


async def deposit(world: World) -> None:
    await world.run(calls.deposit(world.client.address, 10 * fee(world.execution_class, 2)), world.owner)


async def withdraw_escrow(world: World) -> None:
    await world.run(calls.withdraw_escrow(world.random.randint(1, UNIT)), world.client)


async def equivocate(world: World) -> None:
    accounts = world.follower.state.accounts
    key = world.keys[world.random.choice([name for name in world.keys if name in accounts and accounts[name].stake])]
    await equivocated(world, key)


async def equivocated(world: World, key: Key) -> None:
    """The client proves that a party signed two rows; the whole stake is gone."""
    rows = [Row(world.fresh("task"), 0, 0, 4, world.fresh("row"), ZERO_HASH)]
    rows.append(Row(rows[0].task_id, 0, 0, 4, world.fresh("row"), ZERO_HASH))
    signatures = [sign(row, world.chain.domain, key.secret) for row in rows]
    await world.run(calls.prove_equivocation(rows[0], signatures[0], rows[1], signatures[1]), world.client)


REGISTRY = (
    register_node,
    enroll,
    change_slice,
    change_endpoint,
    change_payout,
    top_up,
    deregister,
    withdraw,
    claim,
    evict,
)
MONEY = (deposit, withdraw_escrow)


async def build(world: World, descriptor: ModelDescriptor) -> None:
    """A model, a class, a scheduler, sixteen nodes, a client with escrow."""
    assert await world.run(calls.register_model(descriptor), world.owner)
    assert await world.run(calls.register_class(world.execution_class), world.owner)
    x, y = vrf.public_key(world.vrf_secret)
    registration = SchedulerRegistration(
        world.scheduler.address, world.owner.address, x, y, "https://scheduler.example", world.fresh("tls")
    )
    consent = sign(Consent(world.owner.address, world.scheduler.address), world.chain.domain, world.scheduler.secret)
    assert await world.run(calls.register_scheduler(registration, consent, 10**18), world.owner)
    for _ in range(16):
        await register_node(world)
    await deposit(world)
