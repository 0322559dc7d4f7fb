"""Random operations on a real contract; after each, the folded state must equal what the contract's getters say.

The task that each call carries comes from the fold, so a wrong fold also shows as a StateMismatch.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from troth.chain.errors import ChainRejected
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.protocol import calls, vrf
from troth.protocol.assignment import assignment_alpha, draw, sample_alpha
from troth.protocol.bindings import named
from troth.protocol.calls import Call, views
from troth.protocol.contract_types import (
    ABSENT,
    NO_PROOF,
    CommitSubmission,
    NodeRegistration,
    Opening,
    SchedulerRegistration,
    VrfProof,
    join_signatures,
    pack_inferencers,
)
from troth.protocol.events import TaskSettled
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, fee, group_id, model_id, task_id, verdict_commitment
from troth.protocol.settlement import Outcome
from troth.protocol.state import TaskRecord
from troth.protocol.task import Phase, Progress, Task, Terms, pack_ends, task_hash
from troth.protocol.typed_data import sign
from troth.protocol.types import (
    ZERO_HASH,
    Consent,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Order,
    Row,
    Segment,
    TraceRoot,
    VerdictCommitment,
    segments_from_ends,
)
from troth.protocol.vrf_hints import hints

pytestmark = [pytest.mark.chain, pytest.mark.slow]

UNIT = 10**9
LAYERS = 2
SPLITS = ((2,), (1, 2))
SEGMENTS = (Segment(0, 2), Segment(0, 1), Segment(1, 2))
OPERATIONS = 60
PARTIES = 5


@dataclass(frozen=True)
class Course:
    """What a world is made from."""

    seed: int = 0
    exact: bool = True


@dataclass
class World:
    """A contract, its parties' keys, and the secrets that the parties of the current tasks keep."""

    deployed: Any
    follower: EventFollower
    random: random.Random
    execution_class: ExecutionClass
    vrf_secret: bytes
    keys: dict[str, Key] = field(default_factory=dict)
    openings: dict[Hash32, list[Opening]] = field(default_factory=dict)
    count: int = 0
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def chain(self) -> Any:
        return self.deployed.chain

    @property
    def scheduler(self) -> Key:
        return self.deployed.anvil.keys[1]

    @property
    def client(self) -> Key:
        return self.deployed.anvil.keys[2]

    @property
    def owner(self) -> Key:
        return self.deployed.anvil.keys[3]

    def fresh(self, label: str) -> Hash32:
        self.count += 1
        return Hash32(keccak256(f"{label} {self.count} {self.random.random()}".encode()))

    async def run(self, call: Call, key: Key) -> bool:
        """Send; False and a note if the contract refuses."""
        try:
            await self.chain.execute(call, key)
        except ChainRejected as error:
            if error.name in ("StateMismatch", "Unknown"):
                raise
            self.refused[f"{call.function}: {error.name}"] += 1
            return False
        self.done[call.function] += 1
        await self.follower.catch_up()
        return True

    def live(self, *phases: Phase) -> list[tuple[Hash32, TaskRecord]]:
        tasks = self.follower.state.tasks.items()
        return [(key, record) for key, record in tasks if record.live and record.task.progress.phase in phases]

    def operator(self) -> Key:
        return self.keys[self.random.choice(sorted(self.follower.state.nodes))]


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


async def new_order(world: World) -> tuple[Order, bytes]:
    head = await world.chain.block()
    order = Order(
        execution_class=class_id(world.execution_class),
        request_hash=world.fresh("request"),
        scheduler=world.scheduler.address,
        max_fee=10**18,
        deadline=head.timestamp + 10_000,
        reference_block=head.number,
        nonce=world.count,
    )
    return order, sign(order, world.chain.domain, world.client.secret)


def proofs_for(world: World, task: Hash32, segments: tuple[Segment, ...], reference_block: int) -> list[VrfProof]:
    made = []
    for index, segment in enumerate(segments):
        group = world.follower.state.groups.get(group_id(class_id(world.execution_class), segment))
        alpha = assignment_alpha(
            world.chain.domain,
            task,
            index,
            group_size=group.size_at(reference_block) if group else 0,
            reference_block=reference_block,
        )
        proof = vrf.prove(world.vrf_secret, alpha)
        made.append(VrfProof(proof, tuple(hints(vrf.public_key(world.vrf_secret), alpha, proof))))
    return made


async def open_task(world: World) -> None:
    order, signature = await new_order(world)
    await world.run(calls.open_task(order, world.random.choice(SPLITS), signature), world.scheduler)


async def assign(world: World) -> None:
    for key, record in world.live(Phase.OPENED)[:1]:
        terms = record.task.terms
        proofs = proofs_for(world, key, terms.segments, terms.reference_block)
        await world.run(calls.assign(key, record.task, proofs), world.client)


def opening(world: World, root: Hash32) -> Opening:
    """A verifier's result: mostly the same root and a true verdict."""
    honest = world.random.random() < 0.8
    return Opening(root=root if honest else world.fresh("root"), verdict=honest, salt=world.fresh("salt"))


def secrets_of(world: World, key: Hash32, task: Task) -> list[Opening]:
    """What the parties of a task computed, drawn once per task: per segment the inferencer, then k verifiers."""
    if key not in world.openings:
        made: list[Opening] = []
        for _ in range(task.progress.segments):
            root = world.fresh("root")
            made += [Opening(root=root), *(opening(world, root) for _ in range(task.verifiers))]
        world.openings[key] = made
    return world.openings[key]


def committed(world: World, key: Hash32, task: Task, segment: int, verifier: int) -> Hash32:
    shown = secrets_of(world, key, task)[segment * (1 + task.verifiers) + 1 + verifier]
    party = task.verifiers_of(segment)[verifier]
    return verdict_commitment(key, segment, party, root=shown.root, verdict=shown.verdict, salt=shown.salt)


def submission_for(world: World, key: Hash32, task: Task) -> CommitSubmission:
    """All posts of an assigned task, here and there without one verifier's."""
    posts, signatures, chosen = [], [], []
    output = world.fresh("output")
    for segment in range(task.progress.segments):
        candidate = world.random.randrange(task.progress.candidates)
        chosen.append(candidate)
        root = secrets_of(world, key, task)[segment * (1 + task.verifiers)].root
        last = segment + 1 == task.progress.segments
        rooted = TraceRoot(key, segment, 3, 17, root, output if last else ZERO_HASH)
        posts.append(root)
        signer = world.keys[task.parties_of(segment)[candidate]]
        signatures.append(sign(rooted, world.chain.domain, signer.secret))
        silent = world.random.choice([None, 0, 2])
        for verifier, party in enumerate(task.verifiers_of(segment)):
            commitment = ZERO_HASH if verifier == silent else committed(world, key, task, segment, verifier)
            posts.append(commitment)
            if commitment != ZERO_HASH:
                verdict = VerdictCommitment(key, segment, 3, commitment)
                signatures.append(sign(verdict, world.chain.domain, world.keys[party].secret))
    return CommitSubmission(
        3, 17, output, pack_inferencers(tuple(chosen)), tuple(posts), join_signatures(tuple(signatures))
    )


async def commit(world: World) -> None:
    for key, record in world.live(Phase.ASSIGNED)[:1]:
        await world.run(calls.commit(key, record.task, [], submission_for(world, key, record.task)), world.client)


async def open_and_commit(world: World) -> None:
    """The task is known before the chain knows it: the parties follow from the VRF."""
    order, signature = await new_order(world)
    ends = world.random.choice(SPLITS)
    key, segments = task_id(order, world.chain.domain), segments_from_ends(ends, LAYERS)
    proofs = proofs_for(world, key, segments, order.reference_block)
    groups = [world.follower.state.groups[group_id(order.execution_class, segment)] for segment in segments]
    members = [group.members_at(order.reference_block) for group in groups]
    if any(sum(member is not None for member in group) < PARTIES for group in members):
        return
    drawn = [
        draw(Hash32(vrf.proof_to_hash(proof.proof)), group, PARTIES)
        for proof, group in zip(proofs, members, strict=True)
    ]
    terms = Terms(
        world.client.address, order.scheduler, order.execution_class, 0, order.reference_block, pack_ends(ends)
    )
    parties = tuple(party for segment in drawn for party in segment)
    task = Task(terms, Progress(Phase.ASSIGNED, 0, len(segments), 2, parties=parties))
    submission = submission_for(world, key, task)
    await world.run(calls.open_and_commit(order, ends, signature, proofs, submission), world.scheduler)


async def sample(world: World) -> None:
    for key, record in world.live(Phase.COMMITTED)[:1]:
        progress = record.task.progress
        head = await world.chain.block(progress.phase_block)
        alpha = sample_alpha(world.chain.domain, key, posts=progress.posts, block_hash=head.hash)
        proof = vrf.prove(world.vrf_secret, alpha)
        hinted = VrfProof(proof, tuple(hints(vrf.public_key(world.vrf_secret), alpha, proof)))
        await world.run(calls.sample(key, record.task, hinted), world.scheduler)


async def settle_without_openings(world: World) -> None:
    for key, record in world.live(Phase.SAMPLED)[:1]:
        world.deployed.anvil.mine(world.deployed.parameters.reveal_window + 1)
        absent = [ABSENT] * len(record.task.progress.posts)
        await world.run(calls.settle(key, record.task, NO_PROOF, absent), world.client)


async def close_committed(world: World) -> None:
    for key, record in world.live(Phase.COMMITTED)[:1]:
        world.deployed.anvil.mine(world.deployed.parameters.sample_window + 1)
        await world.run(calls.close(key, record.task), world.client)


async def post_one(world: World, key: Hash32, segment: int, party: int) -> None:
    """A party of an assigned task posts for itself."""
    task = world.follower.state.tasks[key].task
    if party == 0:
        root = secrets_of(world, key, task)[segment * (1 + task.verifiers)].root
        last = segment + 1 == task.progress.segments
        posted = TraceRoot(key, segment, 1, 9, root, keccak_output(key) if last else ZERO_HASH)
        candidate = world.random.choice(task.parties_of(segment)[: task.progress.candidates])
        await world.run(calls.commit_inference(task, posted), world.keys[candidate])
    else:
        verdict = VerdictCommitment(key, segment, 1, committed(world, key, task, segment, party - 1))
        poster = world.keys[task.verifiers_of(segment)[party - 1]]
        await world.run(calls.commit_verification(task, verdict), poster)


async def post_own(world: World) -> None:
    """Up to two parties of one segment post what is still missing."""
    for key, record in world.live(Phase.ASSIGNED)[-1:]:
        segment = world.random.randrange(record.task.progress.segments)
        posts = record.task.posts_of(segment) or (ZERO_HASH,) * (1 + record.task.verifiers)
        for party in [number for number, post in enumerate(posts) if post == ZERO_HASH][:2]:
            await post_one(world, key, segment, party)


async def post_quorum(world: World) -> None:
    """All but one verifier of each segment post."""
    for key, record in world.live(Phase.ASSIGNED)[-1:]:
        for segment in range(record.task.progress.segments):
            for party in range(record.task.verifiers):
                await post_one(world, key, segment, party)


def keccak_output(key: Hash32) -> Hash32:
    return Hash32(keccak256(b"output" + key))


async def seal(world: World) -> None:
    for key, record in world.live(Phase.ASSIGNED)[-1:]:
        world.deployed.anvil.mine(world.deployed.parameters.commit_window // 2)
        await world.run(calls.seal(key, record.task), world.client)


async def abort(world: World) -> None:
    for key, record in world.live(Phase.OPENED, Phase.ASSIGNED)[:1]:
        await world.run(calls.abort(key, record.task), world.scheduler)


async def close(world: World) -> None:
    for key, record in world.live(Phase.OPENED, Phase.ASSIGNED)[:1]:
        world.deployed.anvil.mine(world.deployed.parameters.commit_window + 1)
        await world.run(calls.close(key, record.task), world.client)


async def reveal(world: World) -> None:
    for key, record in world.live(Phase.COMMITTED)[:1]:
        task = record.task
        segment = world.random.randrange(task.progress.segments)
        party = world.random.randrange(1 + task.verifiers)
        shown = secrets_of(world, key, task)[segment * (1 + task.verifiers) + party]
        await world.run(calls.reveal(key, task, segment, party, shown), world.client)


async def settle(world: World) -> None:
    """With all openings, or after the reveal window with some of them absent."""
    for key, record in world.live(Phase.COMMITTED)[:1]:
        late = world.random.random() < 0.4
        if late:
            world.deployed.anvil.mine(world.deployed.parameters.reveal_window + 1)
        shown = [
            ABSENT if post == ZERO_HASH or (late and world.random.random() < 0.4) else one
            for one, post in zip(secrets_of(world, key, record.task), record.task.progress.posts, strict=True)
        ]
        await world.run(calls.settle(key, record.task, NO_PROOF, shown), world.client)


async def equivocate(world: World) -> None:
    accounts = world.follower.state.accounts
    key = world.keys[world.random.choice([name for name in world.keys if name in accounts and accounts[name].stake])]
    rows = [Row(world.fresh("task"), 0, 0, 4, world.fresh("row"), ZERO_HASH)]
    rows.append(Row(rows[0].task_id, 0, 0, 4, world.fresh("row"), ZERO_HASH))
    signatures = [sign(row, world.chain.domain, key.secret) for row in rows]
    await world.run(calls.prove_equivocation(rows[0], signatures[0], rows[1], signatures[1]), world.client)


REGISTRY = (register_node, enroll, change_endpoint, change_payout, top_up, deregister, withdraw, claim, evict)
MONEY = (deposit, withdraw_escrow)
TASKS = (
    open_and_commit,
    open_task,
    open_task,
    assign,
    assign,
    commit,
    post_own,
    post_own,
    seal,
    abort,
    close,
    reveal,
    settle,
    settle,
)


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
        expected = Hash32(record.outcome.to_bytes(32)) if record.outcome else task_hash(record.task)
        assert expected == await read(views.task_state(key))
        assert record.outcome == await read(views.outcome_of(key))
    assert state.held() == await world.chain.balance(world.chain.contract)


async def build(world: World, descriptor: ModelDescriptor) -> None:
    """A model, a class, a scheduler, twelve nodes, a client with escrow."""
    assert await world.run(calls.register_model(descriptor), world.owner)
    assert await world.run(calls.register_class(world.execution_class), world.owner)
    x, y = vrf.public_key(world.vrf_secret)
    registration = SchedulerRegistration(
        world.scheduler.address, world.owner.address, x, y, "https://scheduler.example", world.fresh("tls")
    )
    consent = sign(Consent(world.owner.address, world.scheduler.address), world.chain.domain, world.scheduler.secret)
    assert await world.run(calls.register_scheduler(registration, consent, 10**18), world.owner)
    for _ in range(12):
        await register_node(world)
    await deposit(world)


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
        unit=UNIT,
        minimum_stake=UNIT * 40,
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
