"""A node with a toy model in place of a transformer: real channel, real signatures, real commitments, two layers.

Layer 0 embeds tokens; each layer mixes in its own last output, so that states depend on everything before, and one pass
over all positions gives the same as position by position. Faults are set by assigning to `faults`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from fastapi import FastAPI
from msgspec import UNSET, UnsetType

from troth.overlay.channel_server import ChannelServer
from troth.overlay.errors import OverlayError
from troth.overlay.identity import create_identity
from troth.overlay.operator import Operator
from troth.overlay.server import TlsServer
from troth.protocol import vrf
from troth.protocol.announcement import announcement_from_wire
from troth.protocol.assignment import draw
from troth.protocol.contract_types import Opening
from troth.protocol.dtype import Dtype
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import task_id, trace_commitment, verdict_commitment
from troth.protocol.logprobs import logprobs_of, logprobs_to_bytes
from troth.protocol.request import Request, output_hash
from troth.protocol.rows import RowChain, row_signature
from troth.protocol.tensors import rows_from_bytes, tokens_from_bytes
from troth.protocol.trace import CommittedTrace, TileLayout, tile_indices
from troth.protocol.typed_data import Domain, struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, TraceCommitment, TraceRoot, VerdictCommitment
from troth.protocol.wire import (
    Commit,
    Committed,
    Compare,
    Compared,
    Forward,
    NodeReply,
    NodeRequest,
    Open,
    Opened,
    Received,
    Release,
    Released,
    Rows,
    TraceCommitted,
)

COLUMNS, VOCABULARY, LAYERS, TILES = 32, 64, 2, 1
CANDIDATES, VERIFIERS, REVIEWERS = 2, 3, 5
_EMBEDDING = np.random.default_rng(7).standard_normal((VOCABULARY, COLUMNS)).astype(np.float32)


def layer(inputs: np.ndarray, last: np.ndarray) -> np.ndarray:
    """One layer over new positions, given its last output."""
    outputs = np.empty_like(inputs)
    for index, row in enumerate(inputs):
        last = np.sin(row + np.float32(0.5) * last).astype(np.float32)
        outputs[index] = last
    return outputs


def choose(row: np.ndarray) -> int:
    """The token that the last state stands for."""
    return int(np.argmax(_EMBEDDING @ row))


@dataclass
class Faults:
    """What a node does wrong; each names the message from which on it does."""

    silent: set[type] = field(default_factory=set)
    refuses: set[type] = field(default_factory=set)
    dies_at_position: int | None = None
    wrong_signature_at: int | None = None
    wrong_states: bool = False
    no_numbers: bool = False
    signs_twice_at: int | None = None
    drips: float = 0.0
    pads_openings: bool = False
    copies_root: bool = False
    before_opening: Callable[[Open, Opening], Awaitable[None]] | None = None
    clock_ahead: float = 0.0
    logprobs: bytes | None = None


@dataclass
class _Work:
    request: Request | None
    salt: Hash32
    infers: bool
    chain: RowChain
    outputs: np.ndarray
    committed: CommittedTrace | None = None
    root: Hash32 = ZERO_HASH
    verdict: bool = True
    verdict_salt: Hash32 = ZERO_HASH
    claimed: int = 0


class ToyNode:
    """One node. `members` are the slots of both segments' groups, from which it draws the parties itself."""

    def __init__(self, secret: bytes, domain: Domain, folder: Path, model: Hash32, scheduler: Address) -> None:
        self.operator = Operator(secret, domain)
        self.identity = create_identity(folder)
        self.faults = Faults()
        self.seen: list[tuple[str, int, int]] = []
        self.countersigned: list[tuple[tuple[int, int, int], bytes]] = []
        self.members: list[Address] = []
        self.released: set[bytes] = set()
        self.schedulers = {scheduler}
        self._model = model
        self._works: dict[tuple[bytes, int, int], _Work] = {}
        self._app = FastAPI()
        self._channels = ChannelServer(
            self.operator,
            self._handle,
            lambda sender: sender in self.schedulers,
            clock=lambda: time.time() + self.faults.clock_ahead,
        )
        self._channels.mount(self._app)
        self.server = TlsServer(self._app, self.identity, "127.0.0.1", 0)

    @property
    def address(self) -> Address:
        return self.operator.address

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    async def _handle(self, sender: Address, header: NodeRequest, payload: memoryview) -> tuple[NodeReply, bytes]:
        self.seen.append((type(header).__name__, getattr(header, "segment", -1), getattr(header, "attempt", -1)))
        if type(header) in self.faults.silent:
            await asyncio.sleep(3600)
        if type(header) in self.faults.refuses:
            raise OverlayError("This node refuses", type(header).__name__, "Ask another.")
        match header:
            case Forward():
                return await self._forward(header, payload)
            case Commit():
                return self._commit(header, payload)
            case Compare():
                return self._compare(header)
            case Open():
                return await self._open(header)
            case Release():
                self.released.add(header.task_id)
                return Released(), b""

    async def _forward(self, header: Forward, payload: memoryview) -> tuple[Rows, bytes]:
        key = (header.task_id, header.segment, header.attempt)
        if header.announcement is not None:
            announcement = announcement_from_wire(header.announcement, payload[: header.request_size])
            assert task_id(announcement.order, self.operator.domain) == header.task_id
            assert (announcement.request is not None) == (header.segment in (0, len(announcement.ends) - 1))
            empty = np.zeros((0, COLUMNS), np.float32)
            chain = RowChain(Hash32(header.task_id), header.segment, header.attempt)
            drawn = draw(announcement.betas[header.segment], self.members, CANDIDATES + VERIFIERS)
            assert self.address in drawn
            infers = self.address in drawn[:CANDIDATES]
            self._works[key] = _Work(announcement.request, announcement.salt or ZERO_HASH, infers, chain, empty)
        work = self._works[key]
        assert header.start == len(work.outputs)
        if self.faults.dies_at_position is not None and header.start + header.count > self.faults.dies_at_position:
            await asyncio.sleep(3600)
        inputs, bound = self._inputs(header, payload[header.request_size :])
        await asyncio.sleep(self.faults.drips)
        last = work.outputs[-1] if len(work.outputs) else np.zeros(COLUMNS, np.float32)
        outputs = layer(inputs, last)
        if self.faults.wrong_states:
            outputs = outputs * np.float32(3.0)
        if self.faults.no_numbers:
            outputs = outputs * np.float32("nan")
        work.outputs = np.concatenate([work.outputs, outputs])
        data = outputs.tobytes()
        work.chain, rows = work.chain.extend(data, 4 * COLUMNS, bound)
        secret = self.operator.secret
        if self.faults.wrong_signature_at is not None and rows[-1].position >= self.faults.wrong_signature_at:
            secret = keccak256(secret)
        signed = rows[-1]
        if self.faults.signs_twice_at is not None and signed.position > self.faults.signs_twice_at:
            signed = replace(signed, position=self.faults.signs_twice_at)
        signature = row_signature(signed, self.operator.domain, secret)
        token, finished = self._emit(work, header) if header.emit else (None, None)
        told = self._told(work, token, header.logprobs)
        return Rows(header.start, header.count, signature, token, finished, 40, told), data

    def _told(self, work: _Work, token: int | None, asked: int | UnsetType) -> bytes | UnsetType:
        if token is not None and self.faults.logprobs is not None:
            return self.faults.logprobs
        if token is None or isinstance(asked, UnsetType):
            return UNSET
        return logprobs_to_bytes(logprobs_of(_EMBEDDING @ work.outputs[-1], token, asked))

    def _inputs(self, header: Forward, payload: memoryview) -> tuple[np.ndarray, tuple[int, ...] | None]:
        """The inputs, and the tokens that the rows computed from them bind."""
        size = 4 * header.count
        tokens = tokens_from_bytes(payload[:size], header.count, VOCABULARY)
        if header.kind == "tokens":
            return _EMBEDDING[list(tokens_from_bytes(payload, header.count, VOCABULARY))], tokens
        assert header.upstream is not None
        assert header.countersignature is not None
        place = (header.segment - 1, header.attempt, header.upstream.position)
        self.countersigned.append((place, header.upstream.row_hash))
        return rows_from_bytes(payload[size:], header.count, COLUMNS, Dtype.FLOAT32), None

    def _emit(self, work: _Work, header: Forward) -> tuple[int, str | None]:
        assert work.request is not None
        token = choose(work.outputs[-1])
        made = header.start + header.count - len(work.request.prompt_tokens) + 1
        if token in work.request.end_tokens:
            return token, "stop"
        return token, "length" if made == work.request.max_tokens else None

    def _commit(self, header: Commit, payload: memoryview) -> tuple[NodeReply, bytes]:
        work = self._works[header.task_id, header.segment, header.attempt]
        assert header.positions == len(work.outputs)
        work.committed = TileLayout(header.task_id, self._model, header.positions, COLUMNS, Dtype.FLOAT32).commit(
            work.outputs
        )
        work.root = Hash32(work.committed.root)
        task, position = Hash32(header.task_id), (header.segment, header.attempt)
        if work.infers:
            tokens = tokens_from_bytes(payload, header.tokens, VOCABULARY)
            hashed = output_hash(work.salt, tokens) if header.segment == LAYERS - 1 else ZERO_HASH
            root = TraceRoot(task, *position, header.positions, work.root, hashed)
            return Committed(work.root, hashed, self.operator.sign(root)), b""
        work.verdict_salt = Hash32(keccak256(self.operator.secret + header.task_id))
        hidden = trace_commitment(task, header.segment, self.address, root=work.root, salt=work.verdict_salt)
        return TraceCommitted(hidden, self.operator.sign(TraceCommitment(task, *position, hidden))), b""

    def _compare(self, header: Compare) -> tuple[NodeReply, bytes]:
        work = self._works[header.task_id, header.segment, header.attempt]
        assert work.committed is not None
        work.claimed += header.count
        if work.claimed < header.positions:
            return Received(work.claimed), b""
        work.verdict = header.root == work.root
        assert header.root is not None
        if self.faults.copies_root:
            work.root, work.verdict = Hash32(header.root), True
        task = Hash32(header.task_id)
        commitment, other = (
            verdict_commitment(
                task, header.segment, self.address, root=work.root, verdict=verdict, salt=work.verdict_salt
            )
            for verdict in (work.verdict, not work.verdict)
        )
        assert header.output_hash is not None
        place = (task, header.segment, header.attempt)
        claim = TraceRoot(*place, header.positions, Hash32(header.root), Hash32(header.output_hash))
        signed = self.operator.sign(VerdictCommitment(*place, commitment, struct_hash(claim)))
        return Compared(commitment, other, signed), b""

    async def _open(self, header: Open) -> tuple[NodeReply, bytes]:
        work = self._works[header.task_id, header.segment, header.attempt]
        assert work.committed is not None
        if self.faults.before_opening is not None:
            await self.faults.before_opening(header, Opening(work.root, work.verdict, work.verdict_salt))
        if self.faults.pads_openings:
            return Opened(work.root, work.verdict, work.verdict_salt, 1, 0), bytes(512)
        seed = None if header.proof is None else Hash32(vrf.proof_to_hash(header.proof))
        opening = self.opening(header.task_id, header.segment, header.attempt, seed)
        payload = opening.tiles + b"".join(opening.siblings)
        tiles, siblings = len(opening.tiles) // 512, len(opening.siblings)
        return Opened(opening.root, opening.verdict, opening.salt, tiles, siblings), payload

    def opening(self, task: bytes, segment: int, attempt: int, seed: Hash32 | None) -> Opening:
        """What this node has to show; without a seed, no tiles."""
        work = self._works[task, segment, attempt]
        assert work.committed is not None
        if seed is None:
            return Opening(work.root, work.verdict, work.verdict_salt)
        opened = work.committed.open(tile_indices(seed, segment, TILES, work.committed.layout.count))
        siblings = tuple(Hash32(sibling) for sibling in opened.siblings)
        return Opening(work.root, work.verdict, work.verdict_salt, opened.tiles, siblings)
