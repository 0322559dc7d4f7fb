"""What parties do with tasks, from the order to the settlement, on a real contract."""

from __future__ import annotations

from support.contract_world import LAYERS, PARTIES, SPLITS, World

from troth.protocol import calls, vrf
from troth.protocol.assignment import assignment_alpha, draw, sample_alpha
from troth.protocol.contract_types import (
    ABSENT,
    NO_PROOF,
    CommitSubmission,
    Opening,
    VrfProof,
    join_signatures,
    pack_inferencers,
)
from troth.protocol.ends import pack_ends
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, group_id, task_id, verdict_commitment
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import (
    ZERO_HASH,
    Hash32,
    Order,
    Segment,
    TraceRoot,
    VerdictCommitment,
    segments_from_ends,
)
from troth.protocol.vrf_hints import hints


async def new_order(world: World, ends: tuple[int, ...]) -> tuple[Order, bytes]:
    head = await world.chain.block()
    order = Order(
        execution_class=class_id(world.execution_class),
        request_hash=world.fresh("request"),
        scheduler=world.scheduler.address,
        max_fee=10**18,
        deadline=head.timestamp + 10_000,
        reference_block=head.number,
        nonce=world.count,
        ends=pack_ends(ends),
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
    order, signature = await new_order(world, world.random.choice(SPLITS))
    await world.run(calls.open_task(order, signature), world.scheduler)


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
                verdict = VerdictCommitment(key, segment, 3, commitment, struct_hash(rooted))
                signatures.append(sign(verdict, world.chain.domain, world.keys[party].secret))
    return CommitSubmission(
        3, 17, output, pack_inferencers(tuple(chosen)), tuple(posts), join_signatures(tuple(signatures))
    )


async def commit(world: World) -> None:
    for key, record in world.live(Phase.ASSIGNED)[:1]:
        await world.run(calls.commit(key, record.task, [], submission_for(world, key, record.task)), world.client)


async def open_and_commit(world: World) -> None:
    """The task is known before the chain knows it: the parties follow from the VRF."""
    ends = world.random.choice(SPLITS)
    order, signature = await new_order(world, ends)
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
    await world.run(calls.open_and_commit(order, signature, proofs, submission), world.scheduler)


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
        hidden = committed(world, key, task, segment, party - 1)
        # The contract sees no signature here; what was judged is the verifier's own concern.
        verdict = VerdictCommitment(key, segment, 1, hidden, ZERO_HASH)
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


async def settle_promptly(world: World) -> None:
    """With all openings."""
    for key, record in world.live(Phase.COMMITTED)[:1]:
        pairs = zip(secrets_of(world, key, record.task), record.task.progress.posts, strict=True)
        shown = [ABSENT if post == ZERO_HASH else one for one, post in pairs]
        await world.run(calls.settle(key, record.task, NO_PROOF, shown), world.client)


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
