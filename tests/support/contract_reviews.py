"""What parties do with reviews, from the dispute to its end, on a real contract; each end's money is recomputed."""

from __future__ import annotations

from dataclasses import replace

from support.contract_world import World

from troth.chain.keystore import Key
from troth.protocol import calls, vrf
from troth.protocol.contract_types import ABSENT, NO_PROOF, Opening, VrfProof, join_signatures
from troth.protocol.events import BondReturned, Credited, EscrowReleased, Slashed, TaskDisputed
from troth.protocol.identifiers import group_id, verdict_commitment
from troth.protocol.review import bond_of, draw_alpha, draw_reviewers, fresh, is_disputable, profits
from troth.protocol.review import review_id as id_of
from troth.protocol.review_payout import FirstRound, close_review, settle_review
from troth.protocol.settlement import (
    BondReturn,
    Credit,
    Movement,
    Outcome,
    Party,
    Pot,
    Release,
    Revealed,
    SegmentFindings,
    Slash,
    decide_segment,
)
from troth.protocol.slots import restated
from troth.protocol.state import ReviewRecord, State, TaskRecord
from troth.protocol.task import Phase, Task
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32, TraceRoot, VerdictCommitment
from troth.protocol.vrf_hints import hints

Place = tuple[Hash32, TaskRecord, int]
"""A settled task and one of its segments."""


def disputable(world: World) -> list[Place]:
    """What the contract would take a dispute of now, newest last."""
    state, last = world.follower.state, world.follower.block - world.deployed.parameters.dispute_window
    return [
        (key, record, segment)
        for key, record in state.tasks.items()
        if record.settled is not None and record.settled.settled_block > last
        for segment in range(record.task.progress.segments)
        if is_disputable(record.settled, segment) and id_of(key, segment) not in state.reviews
    ]


def live_reviews(world: World, *phases: Phase) -> list[tuple[Hash32, ReviewRecord]]:
    reviews = world.follower.state.reviews.items()
    return [(key, record) for key, record in reviews if record.live and record.review.progress.phase in phases]


def disputers(world: World, record: TaskRecord, segment: int) -> list[Key]:
    """Parties of the segment, and the client, which has escrow."""
    return [*(world.keys[party] for party in record.task.parties_of(segment) if party in world.keys), world.client]


async def dispute(world: World) -> None:
    """By a party or the client, with escrow for whom the stake is not enough."""
    for place in disputable(world)[-1:]:
        key, bond = (
            world.random.choice(disputers(world, place[1], place[2])),
            bond_of(world.execution_class, party=False),
        )
        if world.follower.state.escrow_of(key.address) < bond:
            assert await world.run(calls.deposit(key.address, bond), world.owner)
        await dispute_by(world, place, key)


async def dispute_by(world: World, place: Place, key: Key) -> bool:
    """The bond is what ``bond_of`` says, from where it says."""
    task_id, record, segment = place
    settled = record.settled
    assert settled is not None
    if not await world.run(calls.dispute(task_id, record.task, settled, segment), key):
        return False
    begun = world.follower.state.reviews[id_of(task_id, segment)].events[0]
    assert isinstance(begun, TaskDisputed)
    party = profits(record.task, settled, segment, key.address)
    bond = bond_of(world.execution_class, party=party)
    undecided = settled.outcomes[segment] == Outcome.INDETERMINATE
    expected = (ZERO_ADDRESS, 0) if undecided else (key.address, bond)
    assert (begun.disputer, begun.bond) == expected
    return True


async def draw_proof(world: World, key: Hash32, record: ReviewRecord) -> VrfProof:
    """The scheduler's, over the hash of the dispute's block; a block later at the earliest."""
    begun = record.review.progress.phase_block
    if world.follower.block == begun:
        world.deployed.anvil.mine()
    size = len(members(world, record.review))
    block = await world.chain.block(begun)
    alpha = draw_alpha(world.chain.domain, key, group_size=size, block_hash=block.hash)
    proof = vrf.prove(world.vrf_secret, alpha)
    return VrfProof(proof, tuple(hints(vrf.public_key(world.vrf_secret), alpha, proof)))


def members(world: World, review: Task) -> list[Address | None]:
    (layers,) = review.terms.segments
    group = world.follower.state.groups[group_id(review.terms.execution_class, layers)]
    return group.members_at(review.terms.reference_block)


async def assign_review(world: World) -> None:
    for key, record in live_reviews(world, Phase.DISPUTED)[-1:]:
        proof = await draw_proof(world, key, record)
        if not await world.run(calls.assign_review(key, record.review, proof), world.client):
            return
        drawn = world.follower.state.reviews[key].review
        beta, first = Hash32(vrf.proof_to_hash(proof.proof)), record.review.progress.parties
        count = world.execution_class.reviewers
        assert drawn.verifiers_of(0) == draw_reviewers(beta, members(world, record.review), first, count)


def review_openings(world: World, key: Hash32, review: Task, says: bool | None = None) -> list[Opening]:
    """What inferencer and reviewers computed, drawn once: mostly of one mind, which ``says`` fixes."""
    if key not in world.openings:
        says = world.random.random() < 0.5 if says is None else says
        root = review.progress.posts[0]
        seen = root if says else world.fresh("root")
        made = [Opening(root=root)]
        for _ in range(world.execution_class.reviewers):
            odd = world.random.random() < 0.2
            made.append(Opening(world.fresh("odd") if odd else seen, says and not odd, world.fresh("salt")))
        world.openings[key] = made
    return world.openings[key]


def hidden(world: World, key: Hash32, review: Task, reviewer: int) -> Hash32:
    shown = review_openings(world, key, review)[1 + reviewer]
    party = review.verifiers_of(0)[reviewer]
    return verdict_commitment(key, 0, party, root=shown.root, verdict=shown.verdict, salt=shown.salt)


async def commit_review(world: World) -> None:
    """All reviewers, or all but one; drawn by the same call if they are not yet."""
    for key, record in live_reviews(world, Phase.DISPUTED, Phase.ASSIGNED)[-1:]:
        review, proofs = record.review, []
        if review.progress.phase is Phase.DISPUTED:
            proofs = [await draw_proof(world, key, record)]
            beta, count = Hash32(vrf.proof_to_hash(proofs[0].proof)), world.execution_class.reviewers
            slots, first = members(world, review), review.progress.parties
            if sum(member is not None for member in fresh(slots, first)) < count:
                return
            drawn = (first[0], *draw_reviewers(beta, slots, first, count))
            review = replace(review, progress=replace(review.progress, parties=drawn))
        silent = world.random.choice([None, 1, 4])
        commitments = [
            ZERO_HASH if reviewer == silent else hidden(world, key, review, reviewer)
            for reviewer in range(world.execution_class.reviewers)
        ]
        progress = review.progress
        judged = TraceRoot(key, 0, progress.attempt, progress.positions, progress.posts[0], progress.output_hash)
        signatures = [
            sign(
                VerdictCommitment(key, 0, progress.attempt, commitment, struct_hash(judged)),
                world.chain.domain,
                world.keys[party].secret,
            )
            for party, commitment in zip(review.verifiers_of(0), commitments, strict=True)
            if commitment != ZERO_HASH
        ]
        call = calls.commit_review(key, record.review, proofs, commitments, join_signatures(tuple(signatures)))
        await world.run(call, world.client)


async def post_review(world: World) -> None:
    """Two reviewers that have not posted do it themselves."""
    for key, record in live_reviews(world, Phase.ASSIGNED)[-1:]:
        missing = [place for place, post in enumerate(record.review.progress.posts) if post == ZERO_HASH]
        for place in missing[:2]:
            review = world.follower.state.reviews[key].review
            commitment = hidden(world, key, review, place - 1)
            verdict = VerdictCommitment(key, 0, review.progress.attempt, commitment, ZERO_HASH)
            poster = world.keys[review.verifiers_of(0)[place - 1]]
            await world.run(calls.commit_verification(review, verdict), poster)


async def reveal_review(world: World) -> None:
    for key, record in live_reviews(world, Phase.COMMITTED)[-1:]:
        posts = record.review.progress.posts
        party = world.random.choice([place for place, post in enumerate(posts) if post != ZERO_HASH])
        shown = review_openings(world, key, record.review)[party]
        await world.run(calls.reveal(key, record.review, 0, party, shown), world.client)


async def settle_reviewed(world: World) -> None:
    """With all openings, or after the reveal window with some of them absent."""
    for key, record in live_reviews(world, Phase.COMMITTED)[-1:]:
        late = world.random.random() < 0.4
        absent = {place for place in range(len(record.review.progress.posts)) if late and world.random.random() < 0.3}
        await settle_review_with(world, key, absent)


async def settle_review_with(world: World, key: Hash32, absent: set[int]) -> None:
    record = world.follower.state.reviews[key]
    progress = record.review.progress
    shown = [
        ABSENT if post == ZERO_HASH or place in absent else one
        for place, (one, post) in enumerate(
            zip(review_openings(world, key, record.review), progress.posts, strict=True)
        )
    ]
    if absent:
        world.deployed.anvil.mine(world.deployed.parameters.reveal_window + 1)
    before = world.follower.state
    task = before.tasks[record.task_id]
    assert task.settled is not None
    call = calls.settle_review(record.task_id, task.task, task.settled, record.segment, record.review, NO_PROOF, shown)
    if await world.run(call, world.client):
        _require_decision(world, before, key, shown)


def _require_decision(world: World, before: State, key: Hash32, shown: list[Opening]) -> None:
    """Outcome, the task's standing and every movement are what the protocol computes from the same openings."""
    record, state = before.reviews[key], world.follower.state
    names = (record.review.parties_of(0)[0], *record.review.verifiers_of(0))
    inferencer, *reviewers = (
        Party(name, post != ZERO_HASH, None if one == ABSENT else Revealed(one.root, one.verdict))
        for name, post, one in zip(names, record.review.progress.posts, shown, strict=True)
    )
    decision = decide_segment(SegmentFindings(inferencer, tuple(reviewers), None))
    task = before.tasks[record.task_id]
    assert task.settled is not None
    stands = restated(task, record.segment, decision.outcome)
    assert state.reviews[key].outcome == decision.outcome
    assert state.tasks[record.task_id].outcome == stands
    refund = task.outcome is Outcome.ACCEPTED and stands is not Outcome.ACCEPTED
    first = FirstRound(task.task, task.settled, record.segment)
    expected = settle_review(decision, first, pot_of(world, record), stakes_at(world, before), refund=refund)
    assert moved(world, key) == expected


def pot_of(world: World, record: ReviewRecord) -> Pot:
    terms = record.review.terms
    reserve = world.deployed.parameters.reserve
    return Pot(terms.fee, world.execution_class.unit, terms.client, terms.scheduler, reserve)


def stakes_at(world: World, state: State) -> dict[str, int]:
    """What can be taken in the block that was followed last."""
    return {
        name: account.stake
        for name, account in state.accounts.items()
        if account.exit_block == 0 or world.follower.block <= account.exit_block
    }


def moved(world: World, key: Hash32) -> tuple[Movement, ...]:
    """The movements of the review's last transaction, as the events tell."""
    record = world.follower.state.reviews[key]
    last = record.events[-1].meta.transaction
    refunds = [
        event for event in world.follower.state.tasks[record.task_id].events if isinstance(event, EscrowReleased)
    ]
    events = sorted(
        {event for event in (*record.events, *refunds) if event.meta.transaction == last},
        key=lambda event: event.meta.log_index,
    )
    movements: list[Movement] = []
    for event in events:
        match event:
            case Slashed() if event.amount:
                movements.append(Slash(event.operator, event.amount, event.reason))
            case Credited():
                movements.append(Credit(event.account, event.amount))
            case EscrowReleased():
                movements.append(Release(event.client, event.amount))
            case BondReturned():
                movements.append(BondReturn(event.disputer, event.amount))
    return tuple(movements)


async def close_reviewed(world: World) -> None:
    """After the deadline: what a silent scheduler pays goes to who disputed."""
    for key, record in live_reviews(world, Phase.DISPUTED, Phase.ASSIGNED)[-1:]:
        world.deployed.anvil.mine(min(world.deployed.parameters.commit_window, 200) + 1)
        before, left = world.follower.state, fresh(members(world, record.review), record.review.progress.parties)
        undrawn = record.review.progress.phase is Phase.DISPUTED
        enough = sum(member is not None for member in left) >= world.execution_class.reviewers
        if await world.run(calls.close_review(key, record.review), world.client):
            expected = close_review(
                pot_of(world, record),
                (),
                stakes_at(world, before),
                verifiers=world.execution_class.verifiers,
                drawable=not undrawn or enough,
            )
            assert moved(world, key) == expected
            assert world.follower.state.tasks[record.task_id].outcome == before.tasks[record.task_id].outcome


REVIEWS = (
    dispute,
    dispute,
    assign_review,
    commit_review,
    commit_review,
    post_review,
    reveal_review,
    settle_reviewed,
    settle_reviewed,
    close_reviewed,
)
