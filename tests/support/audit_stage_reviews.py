"""Disputes for the auditor's stage: verdicts that fall, stand and stay open, and reviews that nobody finishes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scripts.benchmarks import lifecycle
from scripts.benchmarks.lifecycle import COLUMNS, POSITIONS, Request, World
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.demo.anvil import fund, rpc
from troth.protocol import calls, vrf
from troth.protocol.assignment import sample_alpha
from troth.protocol.contract_types import ABSENT, NO_PROOF, Opening, VrfProof, join_signatures
from troth.protocol.dtype import Dtype
from troth.protocol.identifiers import group_id, verdict_commitment
from troth.protocol.review import draw_alpha, draw_reviewers, review_id
from troth.protocol.sampling import tile_indices
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.trace import CommittedTrace, TileLayout, tile_count
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import Address, Hash32, TraceRoot, VerdictCommitment

REVIEWERS = 5


async def reviewed_world(world: World) -> World:
    """The same contract, scheduler and client, with a class that five reviewers suffice for."""
    rules = replace(world.rules, name="reviewed", reviewers=REVIEWERS)
    await world.chain.execute(calls.register_class(rules), world.owner)
    fund(world.rpc, world.client.address, lifecycle.ETHER)
    other = replace(world, rules=rules, nodes={}, slots=[])
    for _ in range(rules.candidates + rules.verifiers + REVIEWERS + 1):
        await lifecycle._register_node(other)
    return other


@dataclass(slots=True)
class Review:
    """One review on its way: what the reviewers computed, and the contract as its events tell."""

    world: World
    request: Request
    follower: EventFollower
    says: bool
    opened: list[Opening]
    traces: list[CommittedTrace]

    @property
    def key(self) -> Hash32:
        return review_id(self.request.task_id, 0)

    @property
    def record(self) -> ReviewRecord:
        return self.follower.state.reviews[self.key]

    @property
    def first(self) -> TaskRecord:
        return self.follower.state.tasks[self.request.task_id]

    async def send(self, call: calls.Call, key: Key) -> None:
        """Send, mine a block, and follow."""
        await self.world.chain.execute(call, key)
        rpc(self.world.rpc, "anvil_mine", "0x1")
        await self.follower.catch_up()

    async def proof(self) -> tuple[VrfProof, tuple[Address, ...]]:
        """The draw, and the parties that it gives."""
        review = self.record.review
        block = await self.world.chain.block(review.progress.phase_block)
        assert block is not None
        (layers,) = review.terms.segments
        group = self.follower.state.groups[group_id(review.terms.execution_class, layers)]
        members = group.members_at(review.terms.reference_block)
        alpha = draw_alpha(self.world.chain.domain, self.key, group_size=len(members), block_hash=block.hash)
        proof = await self.world.proof(alpha)
        beta, first = Hash32(vrf.proof_to_hash(proof.proof)), review.progress.parties
        return proof, (first[0], *draw_reviewers(beta, members, first, REVIEWERS))

    def messages(self, parties: Sequence[Address]) -> list[VerdictCommitment]:
        """What the reviewers sign; it says which claim they judged."""
        progress = self.record.review.progress
        place = (self.key, 0, progress.attempt)
        judged = TraceRoot(*place, progress.positions, progress.posts[0], progress.output_hash)
        made = []
        for reviewer, shown in zip(parties[1:], self.opened[1:], strict=True):
            hidden = verdict_commitment(self.key, 0, reviewer, root=shown.root, verdict=shown.verdict, salt=shown.salt)
            made.append(VerdictCommitment(*place, hidden, struct_hash(judged)))
        return made

    async def commit(self) -> None:
        """Draw and commitments in one call."""
        proof, parties = await self.proof()
        messages = self.messages(parties)
        signatures = [
            sign(message, self.world.chain.domain, self.world.nodes[reviewer].secret)
            for message, reviewer in zip(messages, parties[1:], strict=True)
        ]
        commitments = [message.commitment for message in messages]
        joined = join_signatures(tuple(signatures))
        await self.send(
            calls.commit_review(self.key, self.record.review, [proof], commitments, joined), self.world.scheduler
        )

    async def commit_each(self) -> None:
        """The scheduler draws, the reviewers post for themselves."""
        proof, parties = await self.proof()
        await self.send(calls.assign_review(self.key, self.record.review, proof), self.world.scheduler)
        for reviewer, message in zip(parties[1:], self.messages(parties), strict=True):
            call = calls.commit_verification(self.record.review, message)
            await self.send(call, self.world.nodes[reviewer])

    async def sample_proof(self) -> tuple[VrfProof, Hash32]:
        """As for a task, over the review's own posts."""
        progress = self.record.review.progress
        block = await self.world.chain.block(progress.phase_block)
        assert block is not None
        alpha = sample_alpha(self.world.chain.domain, self.key, posts=progress.posts, block_hash=block.hash)
        proof = await self.world.proof(alpha)
        return proof, Hash32(vrf.proof_to_hash(proof.proof))

    def openings(self, seed: Hash32, *, masked: bool = True) -> list[Opening]:
        """Everybody's sampled tiles."""
        count = tile_count(POSITIONS, COLUMNS, Dtype.FLOAT32)
        indices = tile_indices(seed, 0, self.world.rules.tiles, count)
        made: list[Opening] = []
        for party, (shown, trace) in enumerate(zip(self.opened, self.traces, strict=True)):
            opened = trace.open(indices)
            tiles = calls.mask_tiles(opened.tiles, made[0].tiles) if masked and party else opened.tiles
            made.append(replace(shown, tiles=tiles, siblings=tuple(opened.siblings)))
        return made

    async def settle(self, proof: VrfProof, openings: list[Opening]) -> None:
        """Decided, and paid."""
        settled = self.first.settled
        assert settled is not None
        call = calls.settle_review(
            self.request.task_id, self.first.task, settled, 0, self.record.review, proof, openings
        )
        await self.send(call, self.world.scheduler)

    async def finish(self) -> None:
        """Draw and commitments in one call, sample and openings in another."""
        await self.commit()
        proof, seed = await self.sample_proof()
        await self.settle(proof, self.openings(seed))


async def dispute(request: Request, disputer: Key, *, says: bool) -> Review:
    """A dispute of the first segment; its reviewers will say ``says`` of the inferencer's trace."""
    world = request.world
    follower = EventFollower(world.chain, start_block=0)
    await follower.catch_up()
    base = request.traces[0] if says else None
    traces = [request.traces[0], *(_trace(request, base, number) for number in range(REVIEWERS))]
    opened = [Opening(Hash32(trace.root), says, Hash32(secrets.token_bytes(32))) for trace in traces]
    review = Review(world, request, follower, says, [replace(opened[0], verdict=False), *opened[1:]], traces)
    settled = review.first.settled
    assert settled is not None
    await review.send(calls.dispute(request.task_id, review.first.task, settled, 0), disputer)
    return review


def _trace(request: Request, base: CommittedTrace | None, number: int) -> CommittedTrace:
    """Near the honest states, which ``lifecycle`` makes from seed 7, or near others, of one mind."""
    states = np.random.default_rng(7 if base is not None else 8).standard_normal((POSITIONS, COLUMNS), dtype=np.float32)
    noise = np.random.default_rng(100 + number).standard_normal(states.shape, dtype=np.float32)
    layout = TileLayout(request.task_id, request.world.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
    return layout.commit((states * (1 + np.float32(1e-6) * noise)).astype(np.float32))


async def settled(world: World, nonce: int, *, verdicts: tuple[bool, ...], alone: bool = False) -> Request:
    """A task whose verifiers say ``verdicts`` of an honest trace; ``alone``: each computed something else."""
    request = await lifecycle.place(world, nonce)
    verifiers = request.parties[world.rules.candidates :]
    if alone:
        layout = TileLayout(request.task_id, world.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
        request.traces[1:] = [
            layout.commit(np.random.default_rng(20 + number).standard_normal((POSITIONS, COLUMNS), dtype=np.float32))
            for number in range(len(verifiers))
        ]
    request.posts = (
        Hash32(request.traces[0].root),
        *(
            verdict_commitment(request.task_id, 0, Address(who), root=Hash32(trace.root), verdict=verdict, salt=salt)
            for who, trace, verdict, salt in zip(
                verifiers, request.traces[1:], verdicts, request.salts[1:], strict=True
            )
        ),
    )
    call = calls.open_and_commit(request.order, request.signature, [request.proof], request.submission())
    await request.send("openAndCommit", call, world.scheduler)
    rpc(world.rpc, "anvil_mine", "0x1")
    proof, seed = await request.sample_proof()
    said = (False, *verdicts)
    openings = [
        replace(opening, verdict=verdict)
        for opening, verdict in zip(request.openings(seed, masked=True), said, strict=True)
    ]
    assert request.task is not None
    await request.send("settle", calls.settle(request.task_id, request.task, proof, openings), world.scheduler)
    return request


async def overturned(world: World, nonce: int) -> Request:
    """All three verifiers reject an honest inferencer, which disputes with its stake; the reviewers accept it."""
    request = await settled(world, nonce, verdicts=(False, False, False))
    await (await dispute(request, request.key(0), says=True)).finish()
    return request


async def refunded(world: World, nonce: int) -> Request:
    """Accepted, disputed by the client; reviewers do everything by calls of their own, and reject it."""
    request = await settled(world, nonce, verdicts=(True, True, True))
    review = await dispute(request, world.client, says=False)
    await review.commit_each()
    proof, seed = await review.sample_proof()
    await review.send(calls.sample(review.key, review.record.review, proof), world.scheduler)
    for party, opening in list(enumerate(review.openings(seed, masked=False)))[:2]:
        await review.send(calls.reveal(review.key, review.record.review, 0, party, opening), world.owner)
    await review.settle(NO_PROOF, review.openings(seed))
    return request


async def dispute_lost(world: World, nonce: int) -> Request:
    """A verifier that stood alone disputes and is wrong again; one reviewer is silent."""
    request = await settled(world, nonce, verdicts=(False, True, True))
    review = await dispute(request, request.key(world.rules.candidates), says=True)
    await review.commit()
    proof, seed = await review.sample_proof()
    await review.send(calls.sample(review.key, review.record.review, proof), world.scheduler)
    rpc(world.rpc, "anvil_mine", hex(101))
    openings = review.openings(seed)
    openings[3] = ABSENT
    await review.settle(NO_PROOF, openings)
    return request


async def escalated(world: World, nonce: int) -> Request:
    """The verifiers found no majority; anyone has it verified again, and it is accepted."""
    request = await settled(world, nonce, verdicts=(False, False, False), alone=True)
    await (await dispute(request, world.owner, says=True)).finish()
    return request


async def unreviewed(world: World, nonce: int) -> Request:
    """The scheduler never draws; who disputed gets bond and slash."""
    request = await settled(world, nonce, verdicts=(False, False, False))
    review = await dispute(request, request.key(0), says=True)
    rpc(world.rpc, "anvil_mine", hex(101))
    await review.send(calls.close_review(review.key, review.record.review), world.owner)
    return request


async def waiting(world: World, nonce: int) -> Request:
    """Disputed, then nothing."""
    request = await settled(world, nonce, verdicts=(False, False, False), alone=True)
    await dispute(request, world.owner, says=True)
    return request


ACTS = (overturned, refunded, dispute_lost, escalated, unreviewed, waiting)
"""In the order of the names in ``audit_stage_names``."""
