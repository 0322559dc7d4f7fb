"""The court with everybody in one process: real contracts on anvil, toy traces, reviewers with contexts, a driver.

Messages between them pass through the real frames, and not through sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from support.tabs_stage import PARAMETERS, TabsStage, following, tabs_stage
from support.toy_model import _EMBEDDING, choose, layer

from troth.cases.carrying import Carrier, CaseProgress
from troth.cases.context import CaseContext
from troth.cases.courtroom import CallRefused, ChainView, LiveCourtroom, Mined
from troth.cases.defending import Defender
from troth.cases.evidence import VERSION, Evidence, SegmentRows
from troth.cases.gathering import Gatherer
from troth.cases.inbox import CaseInbox
from troth.cases.journal import CaseJournal
from troth.cases.judging import Inputs, Recomputed
from troth.cases.opening import Opener
from troth.cases.parties import ChannelParties
from troth.cases.record import Record
from troth.cases.reviewing import Reviewer, Timing
from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.protocol import vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks, messages
from troth.protocol.market.calls import PartCall
from troth.protocol.market.checks import OrderView
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.proceedings import CasePhase
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Admission, Draw, Opinion, Order, Result, TraceCommitment, Verdict
from troth.protocol.market.views import view_of
from troth.protocol.request import Request, canonical_bytes, output_hash, request_hash, tokens_to_words
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.typed_data import struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, pack_ends
from troth.protocol.wire import decode_frame, encode_frame
from troth.transport.identity import Operator

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
WRITTEN = 6
LATE = 4
"""Blocks: more than a quarter of the window for the tiles."""
JUDGING_SECONDS = 60.0


def hash_of(text: str) -> Hash32:
    return Hash32(keccak256(text.encode()))


SALT, HEAD_SALT, NODE_SALT = hash_of("salt"), hash_of("head salt"), hash_of("node salt")


def embedded(tokens: Sequence[int]) -> np.ndarray:
    return _EMBEDDING[list(tokens)]


def prefill(inputs: np.ndarray, span: Segment) -> np.ndarray:
    """The toy model's layers over all positions at once."""
    for _ in range(span.first, span.end):
        inputs = layer(inputs, np.zeros(inputs.shape[1], np.float32))
    return inputs


def generate() -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    for _ in range(WRITTEN):
        tokens += (choose(prefill(embedded((*PROMPT, *tokens)), Segment(0, 2))[-1]),)
    return tokens


def quantised(states: np.ndarray) -> np.ndarray:
    """What a coarser model gives."""
    return (np.round(states * 20) / 20).astype(np.float32)


def noisy(states: np.ndarray, seed: int) -> np.ndarray:
    """Another machine's rounding."""
    change = np.random.default_rng(seed).standard_normal(states.shape)
    return (states * (1 + 1e-7 * change)).astype(np.float32)


@dataclass
class ToyEngine:
    """Recompute: an honest run, or whatever ``changed`` makes of it."""

    seed: int
    exact: bool = False
    changed: Any = None
    runs: int = 0

    async def recompute(self, inputs: Inputs) -> Recomputed:
        self.runs += 1
        if inputs.before is None:
            first = embedded(inputs.text.inputs)
        else:
            first = np.frombuffer(inputs.before, np.float32).reshape(-1, 32)
        states = prefill(first, inputs.span)
        if self.changed is not None:
            states = self.changed(states)
        return Recomputed(states if self.exact else noisy(states, self.seed))


@dataclass
class Store:
    """What a scheduler or node still holds: Holdings and Traces."""

    evidence: Evidence | None = None
    rows: dict[int, bytes] = field(default_factory=dict)
    traces: dict[int, CommittedTrace] = field(default_factory=dict)

    async def evidence_of(self, order: Hash32) -> Evidence | None:
        return self.evidence

    async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
        return HEAD_SALT + self.rows[segment] if segment in self.rows else None

    async def root_of(self, order: Hash32, segment: int) -> tuple[Hash32, Hash32] | None:
        return (Hash32(self.traces[segment].root), NODE_SALT) if segment in self.traces else None

    async def trace_of(self, order: Hash32, segment: int) -> tuple[CommittedTrace, Hash32] | None:
        return (self.traces[segment], NODE_SALT) if segment in self.traces else None


class LocalParties(ChannelParties):
    """Parties and holders whose contexts are in this process; ``deaf`` ones do not answer."""

    def __init__(
        self, operator: Operator, state: Any, case_contexts: dict[Address, CaseContext], deaf: set[Address]
    ) -> None:
        super().__init__(operator, state)
        self._case_contexts, self._deaf = case_contexts, deaf
        self.asked: list[str] = []

    async def _ask(self, party: Address, header: Any, payload: bytes, expected: Any) -> Any:
        sender = self._operator.address
        self.asked.append(type(header).__name__)
        if party not in self._case_contexts or party in self._deaf or sender in self._deaf or party == sender:
            return None
        case_context = self._case_contexts[party]
        if not case_context.authorise(sender):
            return None
        frame = decode_frame(encode_frame(header, payload))
        try:
            answered = await case_context.handle(sender, frame.header, frame.payload)
        except ProtocolError:
            return None
        answer = decode_frame(encode_frame(*answered))
        return (answer.header, answer.payload) if isinstance(answer.header, expected) else None


class NotedCourtroom(LiveCourtroom):
    """Adds each call of a driver to a list: its function, and "mined" or why it failed."""

    __slots__ = ("sent",)
    sent: list[tuple[str, str]]

    async def send(self, call: PartCall) -> Mined:
        try:
            mined = await super().send(call)
        except CallRefused as refused:
            self.sent.append((call.call.function, refused.name))
            raise
        self.sent.append((call.call.function, "mined"))
        return mined


@dataclass
class CourtStage:
    """Reviewers, judged node and scheduler around a stage; ``deaf`` parties neither ask nor answer."""

    stage: TabsStage
    follower: MarketFollower
    folder: Path
    case_contexts: dict[Address, CaseContext] = field(default_factory=dict)
    engines: dict[Address, ToyEngine] = field(default_factory=dict)
    deaf: set[Address] = field(default_factory=set)
    asleep: set[Address] = field(default_factory=set)
    store: Store = field(default_factory=Store)
    orders: int = 0
    said: list[str] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Calls of all drivers in order: function, and what became of it."""

    def courtroom(self, key: Key) -> LiveCourtroom:
        self.stage.anvil.fund(key)
        return LiveCourtroom(self.stage.market, self.follower, key)

    def noted(self, key: Key) -> NotedCourtroom:
        self.stage.anvil.fund(key)
        made = NotedCourtroom(self.stage.market, self.follower, key)
        made.sent = self.sent
        return made

    def operator(self, key: Key) -> Operator:
        return Operator(key.secret, self.stage.market.domain)

    def parties(self, key: Key) -> LocalParties:
        return LocalParties(self.operator(key), lambda: self.follower.state, self.case_contexts, self.deaf)

    def seen(self) -> ChainView:
        return ChainView(self.follower.state, self.follower.block)

    def build(self) -> None:
        """A context for every node, and one for the scheduler."""
        for number, node in enumerate(self.stage.nodes):
            engine = ToyEngine(number + 1, self.stage.execution_class.exact)
            court = self.courtroom(node)
            inbox = CaseInbox(self.folder / f"inbox {number}", node.address, 1 << 20)
            gatherer = Gatherer(node.address, inbox, self.parties(node))
            record = Record(self.folder / f"record {number}")
            timing = Timing(again=0.01)
            reviewer = Reviewer(court, self.operator(node), engine, gatherer, record, timing, report=self.said.append)
            self.engines[node.address] = engine
            self.case_contexts[node.address] = CaseContext(self.seen, reviewer, courtroom=court)
        self.case_contexts[self.stage.scheduler.address] = CaseContext(
            self.seen, holdings=self.store, courtroom=self.courtroom(self.stage.scheduler)
        )

    def defend(self, node: Address) -> Defender:
        """The judged node shows its traces."""
        key = next(one for one in self.stage.nodes if one.address == node)
        defender = Defender(self.courtroom(key), node, self.store)
        self.case_contexts[node] = replace(self.case_contexts[node], defender=defender, holdings=self.store)
        return defender

    def give_late(self, depth: int = LATE) -> None:
        """Reviewers and node give their parts only where a phase lies so far back that reviewers, and then tiles, were
        drawn alone."""
        for case_context in self.case_contexts.values():
            if case_context.reviewer is not None:
                case_context.reviewer.timing = replace(case_context.reviewer.timing, depth=depth)
            if case_context.defender is not None:
                case_context.defender.depth = depth

    def carrier(self, key: Key, name: str = "journal", share: float = 0.5) -> Carrier:
        court, journal = self.noted(key), CaseJournal(self.folder / f"{name}.sqlite")
        opener = Opener(court, journal)
        carrier = Carrier(court, self.parties(key), journal, opener=opener, share=share)
        carrier.opener, carrier.journal = opener, journal  # type: ignore[attr-defined]
        return carrier

    async def look(self) -> None:
        """Every node that is awake looks at the chain once."""
        await self.follower.catch_up()
        for case_context in self.case_contexts.values():
            for party in (case_context.reviewer, case_context.defender):
                if party is None:
                    continue
                account = party.account if isinstance(party, Defender) else party.operator.address
                if account not in self.asleep:
                    await party.tick(self.seen())
        await self._judged_ahead()
        await asyncio.sleep(0.05)

    async def _judged_ahead(self) -> None:
        """Whoever judges before the draw is told has ended: blocks wait for it, however slow this machine is."""
        if any(record.state.phase is CasePhase.OPENED for _, record in self.follower.state.cases.items()):
            reviewers = [
                case_context.reviewer
                for case_context in self.case_contexts.values()
                if case_context.reviewer is not None
            ]
            tasks = [task for reviewer in reviewers for task in reviewer._preparing.values() if not task.done()]
            if tasks:
                await asyncio.wait(tasks, timeout=JUDGING_SECONDS)

    async def drive(self, carrier: Carrier, case_id: Hash32, most: int = 200) -> CaseProgress:
        """Until the case is over: a block is mined wherever only blocks or parties are awaited."""
        for _ in range(most):
            await self.look()
            progress = await carrier.tick(case_id)
            if progress.over:
                return progress
            if (
                progress.move is None
                or not progress.words.endswith(tuple("0123456789"))
                or " in block " not in progress.words
            ):
                self.stage.anvil.mine(1)
        raise AssertionError(f"The case did not end: {progress}")

    def balance(self, key: Key) -> int:
        return int(self.stage.anvil.rpc("eth_getBalance", key.address, "latest"), 16)

    # ---- an order

    async def serve(
        self,
        *,
        cheat: Any = None,
        parts: tuple[int, ...] = (2,),
        opinion: Opinion | None = Opinion.REJECT,
        locks: bool = False,
    ) -> Evidence:
        """An order with results, draw and verdicts; ``cheat`` changes the last segment's states."""
        self.orders += 1
        await self.follower.catch_up()
        stage, tokens = self.stage, generate()
        request = Request(stage.class_id, PROMPT, WRITTEN, 0, 1_000_000, ())
        secrets = Secrets(hash_of(f"first {self.orders}"), hash_of(f"second {self.orders}"))
        order = self._order(request, secrets, parts)
        domain = stage.market.domain
        digest = messages.order_id(order, domain)
        view = self.view(order)
        infer_proof = vrf.prove(stage.vrf_secret, messages.infer_alpha(digest))
        nodes = tuple(group[0] for group in checks.candidates(order, infer_proof, view))
        results = self._results(digest, order, tokens, cheat, parts)
        draw_proof = vrf.prove(stage.vrf_secret, messages.draw_alpha(digest))
        beta = Hash32(vrf.proof_to_hash(draw_proof))
        draw = Draw(digest, messages.results_hash(results), beta, self.follower.block)
        admission = Admission(digest, messages.nodes_hash(nodes), self.follower.block)
        commitments, verdicts = self._checked(order, results, secrets.draw, beta, nodes, opinion, locks)
        evidence = Evidence(
            version=VERSION,
            chain_id=domain.chain_id,
            bank=domain.contract,
            tab=stage.client_tab,
            order=sign(order, domain, stage.tab_key.secret),
            admissions=(sign(admission, domain, stage.scheduler.secret),),
            nodes=nodes,
            infer_proof=infer_proof,
            results=tuple(
                sign(result, domain, self.key_of(node).secret) for result, node in zip(results, nodes, strict=True)
            ),
            draws=(sign(draw, domain, stage.scheduler.secret),),
            draw_proof=draw_proof,
            secret=None if opinion is None else secrets.draw,
            second_secret=secrets.tiles,
            commitments=commitments,
            verdicts=verdicts,
            request=canonical_bytes(request),
            answer=tokens_to_words(tokens),
            salt=SALT,
        )
        self.store.evidence = replace(evidence, request=None, answer=None, salt=None)
        return evidence

    def key_of(self, node: Address) -> Key:
        return next(one for one in self.stage.nodes if one.address == node)

    def view(self, order: Order) -> OrderView:
        chain_id = self.stage.market.domain.chain_id
        block = self.follower.block
        return view_of(self.follower.state, order, self.stage.client_tab, chain_id=chain_id, block=block, time=0)

    def _order(self, request: Request, secrets: Secrets, parts: tuple[int, ...]) -> Order:
        return Order(
            tab=tab_id(self.stage.client_tab),
            sequence=self.orders,
            execution_class=self.stage.class_id,
            request_hash=request_hash(request, SALT),
            ends=pack_ends(parts),
            prompt_price=1_000_000_000,
            cached_price=100_000_000,
            written_price=2_000_000_000,
            node_share=8_000,
            max_fee=10**13,
            check_rate=1_000_000,
            deadline=1 << 40,
            reference_block=self.follower.block - 1,
            draw_hash=secrets.draw_hash,
            tiles_hash=secrets.tiles_hash,
            reply_key=hash_of("reply"),
        )

    def _results(
        self, digest: Hash32, order: Order, tokens: tuple[int, ...], cheat: Any, parts: tuple[int, ...]
    ) -> list[Result]:
        inputs, bound = embedded((*PROMPT, *tokens[:-1])), (*PROMPT, *tokens[:-1])
        results: list[Result] = []
        before = order.request_hash
        self.store.rows, self.store.traces = {}, {}
        for segment, end in enumerate(parts):
            span = Segment(parts[segment - 1] if segment else 0, end)
            states = prefill(inputs, span)
            last = segment == len(parts) - 1
            if cheat is not None and last:
                states = cheat(states)
            data = np.ascontiguousarray(states).tobytes()
            layout = TileLayout(digest, self.stage.execution_class.model, *states.shape, Dtype.FLOAT32)
            trace = layout.commit(np.ascontiguousarray(states))
            chain, _ = RowHashes(digest, segment).extend(data, 128, bound if segment == 0 else None)
            after = checks.head(digest, HEAD_SALT, chain.link)
            results.append(
                Result(
                    order=digest,
                    segment=segment,
                    input_head=before,
                    output_head=after,
                    prompt=len(PROMPT),
                    cached=0,
                    written=WRITTEN,
                    trace_commitment=messages.trace_commitment(Hash32(trace.root), NODE_SALT),
                    output_hash=output_hash(SALT, tokens) if last else ZERO_HASH,
                )
            )
            self.store.rows[segment], self.store.traces[segment] = data, trace
            before, inputs = after, states
        return results

    def _checked(
        self,
        order: Order,
        results: list[Result],
        secret: Hash32,
        beta: Hash32,
        nodes: tuple[Address, ...],
        opinion: Opinion | None,
        locks: bool,
    ) -> tuple[tuple[Signed[TraceCommitment], ...], tuple[Signed[Verdict], ...]]:
        if opinion is None:
            return (), ()
        drawn = checks.verifiers(order, results, secret, beta, nodes=nodes, view=self.view(order))
        domain = self.stage.market.domain
        commitments, verdicts = [], []
        for result, seats in zip(results, drawn, strict=True):
            for verifier in seats.seats:
                key, hidden = self.key_of(verifier).secret, hash_of(f"{verifier} {result.segment}")
                said = opinion if result.segment == len(results) - 1 else Opinion.ACCEPT
                before = TraceCommitment(result.order, result.segment, struct_hash(result), hidden)
                commitments.append(sign(before, domain, key))
                verdict = Verdict(result.order, result.segment, struct_hash(result), hidden, said, locks)
                verdicts.append(sign(verdict, domain, key))
        return tuple(commitments), tuple(verdicts)

    def rows(self) -> tuple[SegmentRows, ...]:
        """The rows of all segments, as evidence holds them."""
        return tuple(SegmentRows.of(segment, data) for segment, data in self.store.rows.items())


@asynccontextmanager
async def court_stage(anvil: Any, folder: Path, **changes: Any) -> AsyncIterator[CourtStage]:
    """A deployment with its court; ``changes`` go to ``tabs_stage``."""
    parameters = changes.pop(
        "parameters", replace(PARAMETERS, lookahead=2, draw_window=8, commit_window=24, reveal_window=24)
    )
    async with tabs_stage(anvil, parameters=parameters, **changes) as stage, following(stage) as follower:
        made = CourtStage(stage, follower, folder)
        made.build()
        yield made
        for case_context in made.case_contexts.values():
            if case_context.reviewer is not None:
                await case_context.reviewer.close()
