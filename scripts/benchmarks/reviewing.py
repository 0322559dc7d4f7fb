"""A dispute of an accepted task on a real chain, as its client raises it, and the review to its end."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import lifecycle
from benchmarks.lifecycle import COLUMNS, ETHER, POSITIONS, Request, World
from troth.chain.records import Receipt
from troth.demo.anvil import fund
from troth.protocol import assignment, calls, review, sampling, vrf
from troth.protocol.contract_types import NO_PROOF, Opening, Settled, VrfProof, join_signatures
from troth.protocol.dtype import Dtype
from troth.protocol.events.tasks import TaskSettled
from troth.protocol.identifiers import verdict_commitment
from troth.protocol.task import Phase, Task
from troth.protocol.trace import CommittedTrace, TileLayout, tile_count
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import Hash32, TraceRoot, VerdictCommitment

NOTHING = Hash32(bytes(32))


@dataclass(slots=True)
class Second:
    """A review on its way: its state, its reviewers' traces and what they signed."""

    first: Request
    settled: Settled
    identifier: Hash32
    task: Task
    gas: dict[str, int]

    @property
    def world(self) -> World:
        """Where it happens."""
        return self.first.world

    async def send(self, name: str, call: calls.Call) -> Receipt:
        """Send as the owner, and note the gas."""
        receipt = await self.world.chain.execute(call, self.world.owner)
        self.gas[name] = receipt.gas_used
        return receipt


async def reviewed(world: World, nonce: int) -> dict[str, int]:
    """Gas of dispute, commitReview (with the draw) and settleReview (with the sample), after an accepted task."""
    first = await lifecycle.place(world, nonce)
    await first.send("open", calls.open_task(first.order, first.signature), world.scheduler)
    assert first.task is not None
    commit = calls.commit(first.task_id, first.task, [first.proof], first.submission())
    await first.send("commit", commit, world.scheduler)
    await _next_block(world)
    proof, seed = (NO_PROOF, NOTHING) if world.rules.exact else await first.sample_proof()
    settle = calls.settle(first.task_id, first.task, proof, first.openings(seed, masked=True))
    receipt = await first.send("settle", settle, world.scheduler)
    settled = review.settled_by(next(event for event in receipt.events if isinstance(event, TaskSettled)))
    return await _second(first, settled)


async def _second(first: Request, settled: Settled) -> dict[str, int]:
    world, task = first.world, first.task
    assert task is not None
    fund(world.rpc, world.client.address, ETHER)
    call = calls.dispute(first.task_id, task, settled, 0)
    receipt = await world.chain.execute(call, world.client)
    bond = review.bond_of(world.rules, party=False)
    made = Second(
        *(first, settled, review.review_id(first.task_id, 0)),
        review.review_task(task, 0, world.client.address, bond, receipt.block),
        {"dispute": receipt.gas_used},
    )
    await _next_block(world)
    proof = await _draw(made)
    traces = _traces(made)
    salts = [NOTHING, *(Hash32(secrets.token_bytes(32)) for _ in traces[1:])]
    drawn = made.task
    signatures = _sign(made, traces, salts)
    before = review.review_task(task, 0, world.client.address, bond, receipt.block)
    commitments = made.task.progress.posts[1:]
    committed = await made.send(
        "commitReview", calls.commit_review(made.identifier, before, [proof], commitments, signatures)
    )
    progress = replace(
        drawn.progress, phase=Phase.COMMITTED, phase_block=committed.block, posts=made.task.progress.posts
    )
    made.task = Task(drawn.terms, progress)
    await _next_block(world)
    await _settle(made, traces, salts)
    return made.gas


async def _draw(made: Second) -> VrfProof:
    world = made.world
    block = await world.chain.block(made.task.progress.phase_block)
    assert block is not None
    alpha = review.draw_alpha(world.chain.domain, made.identifier, group_size=len(world.slots), block_hash=block.hash)
    proof = await world.proof(alpha)
    beta = Hash32(vrf.proof_to_hash(proof.proof))
    parties = made.task.progress.parties
    reviewers = review.draw_reviewers(beta, world.slots, parties, world.rules.reviewers)  # type: ignore[arg-type]
    posts = (made.task.progress.posts[0], *(NOTHING for _ in reviewers))
    progress = replace(made.task.progress, phase=Phase.ASSIGNED, parties=(parties[0], *reviewers), posts=posts)
    made.task = Task(made.task.terms, progress)
    return proof


def _traces(made: Second) -> list[CommittedTrace]:
    first = made.first
    generator = np.random.default_rng(7)
    honest = generator.standard_normal((POSITIONS, COLUMNS), dtype=np.float32)
    layout = TileLayout(first.task_id, made.world.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
    traces = [first.traces[0]]
    for _ in range(made.world.rules.reviewers):
        noise = 0.0 if made.world.rules.exact else generator.standard_normal(honest.shape, dtype=np.float32)
        traces.append(layout.commit((honest * (1 + np.float32(1e-6) * noise)).astype(np.float32)))
    return traces


def _sign(made: Second, traces: list[CommittedTrace], salts: list[Hash32]) -> bytes:
    """Notes the reviewers' commitments in the state and returns their signatures."""
    world, progress = made.world, made.task.progress
    posts, signatures = [progress.posts[0]], []
    root = TraceRoot(made.identifier, 0, progress.attempt, POSITIONS, progress.posts[0], progress.output_hash)
    for reviewer, trace, salt in zip(progress.parties[1:], traces[1:], salts[1:], strict=True):
        commitment = verdict_commitment(made.identifier, 0, reviewer, root=Hash32(trace.root), verdict=True, salt=salt)
        posts.append(commitment)
        message = VerdictCommitment(made.identifier, 0, progress.attempt, commitment, struct_hash(root))
        signatures.append(sign(message, world.chain.domain, world.nodes[reviewer].secret))
    made.task = Task(made.task.terms, replace(progress, posts=tuple(posts)))
    return join_signatures(tuple(signatures))


async def _settle(made: Second, traces: list[CommittedTrace], salts: list[Hash32]) -> None:
    world, task = made.world, made.first.task
    assert task is not None
    proof, indices = NO_PROOF, ()
    if not world.rules.exact:
        block = await world.chain.block(made.task.progress.phase_block)
        assert block is not None
        alpha = assignment.sample_alpha(
            world.chain.domain, made.identifier, posts=made.task.progress.posts, block_hash=block.hash
        )
        proof = await world.proof(alpha)
        seed = Hash32(vrf.proof_to_hash(proof.proof))
        count = tile_count(POSITIONS, COLUMNS, Dtype.FLOAT32)
        indices = sampling.tile_indices(seed, 0, world.rules.tiles, count)
    openings: list[Opening] = []
    for party, trace in enumerate(traces):
        shown = None if world.rules.exact else trace.open(indices)
        tiles = b"" if shown is None else shown.tiles
        siblings = () if shown is None else tuple(shown.siblings)
        if party and tiles:
            tiles = calls.mask_tiles(tiles, openings[0].tiles)
        openings.append(Opening(Hash32(trace.root), party > 0, salts[party], tiles, siblings))
    await made.send(
        "settleReview",
        calls.settle_review(made.first.task_id, task, made.settled, 0, made.task, proof, openings),
    )


async def _next_block(world: World) -> None:
    await world.chain.execute(calls.deposit(world.client.address, 1), world.owner)
