"""Whole tasks on a real chain, without a model: made-up traces, real keys, proofs, signatures and openings.

Gas does not depend on what the numbers in a trace mean, only on their bytes: verifiers' traces differ from the
inferencer's by relative noise of 1e-6, which is what honest float32 runs show.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from troth.chain.adapter import Chain
from troth.chain.deployment import deploy
from troth.chain.keystore import Key
from troth.chain.records import Receipt
from troth.demo.anvil import fund
from troth.protocol import assignment, calls, sampling, vrf
from troth.protocol.contract_types import (
    NO_PROOF,
    CommitSubmission,
    NodeRegistration,
    Opening,
    Parameters,
    SchedulerRegistration,
    VrfProof,
    join_signatures,
    pack_inferencers,
)
from troth.protocol.dtype import Dtype
from troth.protocol.ends import pack_ends
from troth.protocol.identifiers import class_id, fee, model_id, task_id, verdict_commitment
from troth.protocol.task import Task
from troth.protocol.task_progress import advance, opened
from troth.protocol.trace import CommittedTrace, TileLayout, tile_count
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import (
    Consent,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Order,
    Segment,
    TraceRoot,
    VerdictCommitment,
)
from troth.protocol.vrf_hints import hints

LAYERS, COLUMNS, POSITIONS = 30, 576, 63
WHOLE = Segment(0, LAYERS)
ETHER = 10**18


@dataclass(slots=True)
class World:
    """A deployed contract with one scheduler, enough nodes for one whole-model segment, and a client."""

    chain: Chain
    rpc: str
    owner: Key
    rules: ExecutionClass
    vrf_secret: bytes = field(default_factory=vrf.generate_key)
    scheduler: Key = field(default_factory=Key.generate)
    client: Key = field(default_factory=Key.generate)
    nodes: dict[str, Key] = field(default_factory=dict)
    slots: list[str | None] = field(default_factory=list)

    async def proof(self, alpha: bytes) -> VrfProof:
        """The scheduler's proof with the contract's hints."""
        proof = vrf.prove(self.vrf_secret, alpha)
        return VrfProof(proof, tuple(hints(vrf.public_key(self.vrf_secret), alpha, proof)))


async def build(rpc: str, *, exact: bool, reviewers: int = 15, group: int = 5) -> World:
    """Deploy, register a model, a class, a scheduler and ``group`` nodes, and fill the client's escrow."""
    owner = Key.generate()
    fund(rpc, owner.address, 1_000 * ETHER)
    chain, _ = await deploy(rpc, Parameters(100, 100, 100, 100, 2_000, ETHER, owner.address), owner)
    descriptor = ModelDescriptor("llama/gas/gas", LAYERS, COLUMNS, 49_152, 0, Hash32(secrets.token_bytes(32)))
    rules = ExecutionClass(
        *(
            Hash32(model_id(descriptor)),
            "gas",
            0,
            exact,
            10,
            8,
            9_000,
            0 if exact else 1,
            2,
            3,
            reviewers,
            10**12,
            10**15,
            1_000,
            20_000,
        ),
        Hash32(bytes(32)),
    )
    world = World(chain, rpc, owner, rules)
    await chain.execute(calls.register_model(descriptor), owner)
    await chain.execute(calls.register_class(rules), owner)
    x, y = vrf.public_key(world.vrf_secret)
    fund(rpc, world.scheduler.address, ETHER)
    registration = SchedulerRegistration(
        world.scheduler.address, owner.address, x, y, "https://127.0.0.1:1", Hash32(bytes(31) + b"\1")
    )
    await chain.execute(calls.register_scheduler(registration, _consent(world, world.scheduler), ETHER), owner)
    for _ in range(group):
        await _register_node(world)
    await chain.execute(calls.deposit(world.client.address, ETHER), owner)
    return world


async def _register_node(world: World) -> None:
    node = Key.generate()
    fund(world.rpc, node.address, ETHER)
    registration = NodeRegistration(
        *(node.address, world.owner.address, class_id(world.rules), 0, LAYERS, (WHOLE,)),
        *("https://127.0.0.1:2", Hash32(bytes(31) + b"\2")),
    )
    await world.chain.execute(calls.register_node(registration, _consent(world, node), 10**16), world.owner)
    world.nodes[node.address] = node
    world.slots.append(node.address)


def _consent(world: World, operator: Key) -> bytes:
    return sign(Consent(world.owner.address, operator.address), world.chain.domain, operator.secret)


@dataclass(slots=True)
class Request:
    """One task on its way: its order, its parties, their traces and what they signed."""

    world: World
    order: Order
    signature: bytes
    task_id: Hash32
    proof: VrfProof
    parties: tuple[str, ...]
    traces: list[CommittedTrace]
    salts: list[Hash32]
    posts: tuple[Hash32, ...]
    output_hash: Hash32
    task: Task | None = None
    gas: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, Hash32] = field(default_factory=dict)

    async def send(self, name: str, call: calls.Call, key: Key) -> Receipt:
        """Send, note gas and transaction under `name`, and follow the task's events."""
        receipt = await self.world.chain.execute(call, key)
        self.transactions[name] = receipt.transaction
        self.gas[name] = self.gas.get(name, 0) + receipt.gas_used
        for event in receipt.events:
            if type(event).__name__ == "TaskOpened":
                self.task = opened(event, self.world.rules.candidates)
            elif self.task is not None and hasattr(event, "task_id"):
                self.task = _advanced(self.task, event)
        return receipt

    def submission(self) -> CommitSubmission:
        """Everything signed, as one transaction posts it."""
        root = TraceRoot(self.task_id, 0, 0, POSITIONS, self.posts[0], self.output_hash)
        domain = self.world.chain.domain
        signatures = [sign(root, domain, self.key(0).secret)]
        for index, commitment in enumerate(self.posts[1:]):
            message = VerdictCommitment(self.task_id, 0, 0, commitment, struct_hash(root))
            signatures.append(sign(message, domain, self.key(self.world.rules.candidates + index).secret))
        return CommitSubmission(
            0, POSITIONS, self.output_hash, pack_inferencers((0,)), self.posts, join_signatures(tuple(signatures))
        )

    def key(self, party: int) -> Key:
        """Key of a drawn party: candidates first, then verifiers."""
        return self.world.nodes[self.parties[party]]

    async def sample_proof(self) -> tuple[VrfProof, Hash32]:
        """The scheduler's sampling proof and its output, from the commit block's hash."""
        assert self.task is not None
        block = await self.world.chain.block(self.task.progress.phase_block)
        assert block is not None
        alpha = assignment.sample_alpha(
            self.world.chain.domain, self.task_id, posts=self.task.progress.posts, block_hash=block.hash
        )
        proof = await self.world.proof(alpha)
        return proof, Hash32(vrf.proof_to_hash(proof.proof))

    def openings(self, seed: Hash32, *, masked: bool) -> list[Opening]:
        """Everybody's sampled tile; an exact class shows roots only."""
        exact = self.world.rules.exact
        count = tile_count(POSITIONS, COLUMNS, Dtype.FLOAT32)
        indices = () if exact else sampling.tile_indices(seed, 0, self.world.rules.tiles, count)
        shown: list[Opening] = []
        for party, trace in enumerate(self.traces):
            opened_tiles = None if exact else trace.open(indices)
            tiles = b"" if opened_tiles is None else opened_tiles.tiles
            siblings = () if opened_tiles is None else tuple(opened_tiles.siblings)
            if masked and party and tiles:
                tiles = calls.mask_tiles(tiles, shown[0].tiles)
            shown.append(Opening(Hash32(trace.root), party > 0, self.salts[party], tiles, siblings))
        return shown


def _advanced(task: Task, event: object) -> Task:
    name = type(event).__name__
    return task if name in {"Credited", "Slashed", "EscrowReleased"} else advance(task, event)  # type: ignore[arg-type]


async def place(world: World, nonce: int) -> Request:
    """An order with its assignment, and the traces and commitments of its parties."""
    chain = world.chain
    head = await chain.block()
    assert head is not None
    order = Order(
        *(class_id(world.rules), Hash32(secrets.token_bytes(32)), world.scheduler.address, fee(world.rules, 1)),
        *(max(head.timestamp, int(time.time())) + 3_600, head.number, nonce, pack_ends((LAYERS,))),
    )
    await chain.execute(calls.deposit(world.client.address, 1), world.owner)  # the reference block must lie in the past
    identifier = task_id(order, chain.domain)
    alpha = assignment.assignment_alpha(
        chain.domain, identifier, 0, group_size=len(world.slots), reference_block=order.reference_block
    )
    proof = await world.proof(alpha)
    drawn = assignment.draw(Hash32(vrf.proof_to_hash(proof.proof)), world.slots, world.rules.parties)  # type: ignore[arg-type]
    traces = _traces(world, identifier)
    salts = [Hash32(secrets.token_bytes(32)) for _ in traces]
    verifiers = drawn[world.rules.candidates :]
    commitments = [
        verdict_commitment(identifier, 0, verifier, root=Hash32(trace.root), verdict=True, salt=salt)
        for verifier, trace, salt in zip(verifiers, traces[1:], salts[1:], strict=True)
    ]
    return Request(
        *(world, order, sign(order, chain.domain, world.client.secret), identifier, proof, drawn, traces, salts),
        *((Hash32(traces[0].root), *commitments), Hash32(secrets.token_bytes(32))),
    )


def _traces(world: World, identifier: Hash32) -> list[CommittedTrace]:
    generator = np.random.default_rng(7)
    honest: NDArray[np.float32] = generator.standard_normal((POSITIONS, COLUMNS), dtype=np.float32)
    layout = TileLayout(identifier, world.rules.model, POSITIONS, COLUMNS, Dtype.FLOAT32)
    traces = [layout.commit(honest)]
    for _ in range(world.rules.verifiers):
        noise = generator.standard_normal(honest.shape, dtype=np.float32)
        other = honest if world.rules.exact else (honest * (1 + np.float32(1e-6) * noise)).astype(np.float32)
        traces.append(layout.commit(other))
    return traces


async def cooperative(world: World, nonce: int) -> Request:
    """open, commit (with the assignment's proof), settle (with the sample)."""
    request = await place(world, nonce)
    await request.send("open", calls.open_task(request.order, request.signature), world.scheduler)
    assert request.task is not None
    commit = calls.commit(request.task_id, request.task, [request.proof], request.submission())
    await request.send("commit", commit, world.scheduler)
    await _settle(request)
    return request


async def merged(world: World, nonce: int) -> Request:
    """openAndCommit, settle."""
    request = await place(world, nonce)
    call = calls.open_and_commit(request.order, request.signature, [request.proof], request.submission())
    await request.send("openAndCommit", call, world.scheduler)
    await _settle(request)
    return request


async def _settle(request: Request) -> None:
    world = request.world
    await world.chain.execute(calls.deposit(world.client.address, 1), world.owner)  # the next block
    assert request.task is not None
    proof, seed = (NO_PROOF, Hash32(bytes(32))) if world.rules.exact else await request.sample_proof()
    settle = calls.settle(request.task_id, request.task, proof, request.openings(seed, masked=True))
    await request.send("settle", settle, world.scheduler)


async def step_by_step(world: World, nonce: int) -> Request:
    """Every party for itself: open, assign, own commitments, sample, own reveals, settle. Tolerant class."""
    request = await place(world, nonce)
    await request.send("open", calls.open_task(request.order, request.signature), world.scheduler)
    assert request.task is not None
    await request.send("assign", calls.assign(request.task_id, request.task, [request.proof]), world.scheduler)
    root = TraceRoot(request.task_id, 0, 0, POSITIONS, request.posts[0], request.output_hash)
    await request.send("commit inference", calls.commit_inference(request.task, root), request.key(0))
    for index, commitment in enumerate(request.posts[1:]):
        message = VerdictCommitment(request.task_id, 0, 0, commitment, struct_hash(root))
        name = "commit verification" if index == 0 else f"commit verification {index + 1}"
        await request.send(
            name, calls.commit_verification(request.task, message), request.key(world.rules.candidates + index)
        )
    await world.chain.execute(calls.deposit(world.client.address, 1), world.owner)
    proof, seed = await request.sample_proof()
    await request.send("sample", calls.sample(request.task_id, request.task, proof), world.scheduler)
    for party, opening in enumerate(request.openings(seed, masked=False)):
        call = calls.reveal(request.task_id, request.task, 0, party, opening)
        await request.send("reveal" if party == 1 else f"reveal {party}", call, world.owner)
    openings = [_without_path(opening) for opening in request.openings(seed, masked=True)]
    await request.send("settle", calls.settle(request.task_id, request.task, NO_PROOF, openings), world.owner)
    return request


def _without_path(opening: Opening) -> Opening:
    return Opening(opening.root, opening.verdict, opening.salt, opening.tiles, ())
