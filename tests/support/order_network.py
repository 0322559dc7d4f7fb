"""Nodes on tabs with real records, signatures and checks over a toy engine; a test plays their scheduler.

Only the chain is a fake: the state that a follower would have folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from support.order_market import (
    BLOCK,
    CHAIN_ID,
    CLIENT_TAB,
    DOMAIN,
    NOW,
    PROMPT,
    REPLY_SECRET,
    SCHEDULER,
    SCHEDULER_KEY,
    TAB_KEY,
    VRF_SECRET,
    FakeGround,
    node_secret,
    state_of,
)
from support.order_node import Node
from support.tabs_stage import ASK, MODEL, execution_class_of

from troth.node.orders.context import LendingLimits
from troth.protocol import typed_data, vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import canonical, checks, lottery, messages, prices, tabs
from troth.protocol.market.checks import Answer, Opened
from troth.protocol.market.life import Check, Journey
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.papers import CheckPapers, Commitments, InferencePapers, Pay
from troth.protocol.market.rows import RowHashes, verify_rows
from troth.protocol.market.signed import Admission, Draw, Order, Promise, Result, TraceCommitment, Verdict, Work
from troth.protocol.market.types import Ask, ExecutionClass, Tab, Voucher
from troth.protocol.market.views import view_of
from troth.protocol.request import Request, canonical_bytes, output_hash, request_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.transforms import NO_TRANSFORMS, Transforms
from troth.protocol.types import Address, Hash32, ModelDescriptor, pack_ends
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Advance, Conclude, Judge, Judged, Recommit, Redeemable, Unveil
from troth.transport import sealing

__all__ = ["Network", "Node", "Ordered", "build", "np", "verified"]


@dataclass
class Ordered:
    """One order as its scheduler holds it."""

    request: Request
    salt: Hash32
    secrets: lottery.Secrets
    order: Signed[Order]
    order_id: Hash32
    voucher: Signed[Voucher]
    admission: Signed[Admission]
    nodes: tuple[Address, ...]
    infer_proof: bytes
    head_salt: Hash32
    pays: dict[tuple[Address, int, Work], Pay] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    last_row: bytes = b""
    imprints: bytes = b""
    ends: list[RowSignature | None] = field(default_factory=list)
    results: list[Signed[Result]] = field(default_factory=list)
    draw: Signed[Draw] | None = None
    draw_proof: bytes = b""

    @property
    def positions(self) -> int:
        return len(self.request.prompt_tokens) + len(self.tokens) - 1

    @property
    def sequence(self) -> tuple[int, ...]:
        return (*self.request.prompt_tokens, *self.tokens[:-1])


@dataclass
class Network:
    """Nodes by address, and what a scheduler and a client know."""

    nodes: dict[Address, Node]
    ground: FakeGround
    execution_class: ExecutionClass
    ends: tuple[int, ...]
    client: tabs.PayerBook
    payers: dict[Address, tabs.PayerBook] = field(default_factory=dict)
    count: int = 0
    model: ModelDescriptor = MODEL

    # ---- before

    def order(
        self,
        *,
        max_tokens: int = 6,
        prompt: tuple[int, ...] = PROMPT,
        temperature: int = 0,
        end_tokens: tuple[int, ...] = (),
        transforms: Transforms = NO_TRANSFORMS,
        cuts: tuple[int, int] = (0, 0),
        may_end_early: bool = False,
        **changes: Any,
    ) -> Ordered:
        """``cuts``: top_k, and min_p in millionths."""
        self.count += 1
        class_id = messages.state_hash(self.execution_class)
        request = Request(class_id, prompt, max_tokens, temperature, 950_000, end_tokens, transforms, *cuts)
        request = replace(request, may_end_early=may_end_early)
        salt = Hash32(keccak256(b"salt %d" % self.count))
        hashed = request_hash(request, salt)
        self.client, number = tabs.order_next(self.client, 10_000, self.ground.state.tab_state(self.client.tab))
        secrets = lottery.secrets_for(b"\x07" * 32, self.client.tab, number, hashed)
        plain = Order(
            tab=self.client.tab,
            sequence=number,
            execution_class=class_id,
            request_hash=hashed,
            ends=pack_ends(self.ends),
            prompt_price=1_000_000_000,
            cached_price=100_000_000,
            written_price=2_000_000_000,
            node_share=8_000,
            max_fee=10_000,
            check_rate=1_000_000,
            deadline=NOW + 60,
            reference_block=BLOCK - 10,
            draw_hash=secrets.draw_hash,
            tiles_hash=secrets.tiles_hash,
            reply_key=Hash32(sealing.public_key(REPLY_SECRET)),
        )
        order = sign(replace(plain, **changes), DOMAIN, TAB_KEY)
        order_id = messages.order_id(order.message, DOMAIN)
        proof = vrf.prove(VRF_SECRET, messages.infer_alpha(order_id))
        chosen = tuple(drawn[0] for drawn in checks.candidates(order.message, proof, self.view(order.message)))
        admitted = Admission(order_id, messages.nodes_hash(chosen), max(BLOCK, order.message.reference_block))
        admission = sign(admitted, DOMAIN, SCHEDULER_KEY)
        voucher = sign(self.client.voucher, DOMAIN, TAB_KEY)
        head_salt = Hash32(keccak256(b"heads %d" % self.count))
        return Ordered(request, salt, secrets, order, order_id, voucher, admission, chosen, proof, head_salt)

    def view(self, order: Order) -> checks.OrderView:
        return view_of(self.ground.state, order, CLIENT_TAB, chain_id=CHAIN_ID, block=self.ground.block, time=NOW)

    def pay(self, ordered: Ordered, node: Address, segment: int, work: Work, price: int, ask: Ask = ASK) -> Pay:
        """A promise on the tab with a node; the same one again if it was made before."""
        place = (node, segment, work)
        if place not in ordered.pays:
            tab = Tab(SCHEDULER, node, SCHEDULER)
            book = self.payers.get(node, tabs.PayerBook(tab_id(tab)))
            self.payers[node], number = tabs.order_next(book, price, self.ground.state.tab_state(book.tab))
            asks = (ask.prompt, ask.cached, ask.written) if work is Work.INFERENCE else (0, 0, 0)
            reference = ordered.order.message.reference_block
            promise = Promise(book.tab, number, ordered.order_id, segment, work, reference, *asks, price)
            ordered.pays[place] = Pay(
                tab,
                sign(promise, DOMAIN, SCHEDULER_KEY),
                sign(self.payers[node].voucher, DOMAIN, SCHEDULER_KEY),
            )
        return ordered.pays[place]

    def price(self, ordered: Ordered) -> int:
        request = ordered.request
        work = ASK.prompt * len(request.prompt_tokens) + ASK.written * request.max_tokens
        return -(-work // prices.PER)

    def papers(self, ordered: Ordered, segment: int, **changes: Any) -> InferencePapers:
        shown = segment in {0, len(self.ends) - 1}
        plain = InferencePapers(
            order=ordered.order,
            tab=CLIENT_TAB,
            admission=ordered.admission,
            nodes=ordered.nodes,
            infer_proof=ordered.infer_proof,
            pay=self.pay(ordered, ordered.nodes[segment], segment, Work.INFERENCE, self.price(ordered)),
            head_salt=ordered.head_salt,
            salt=ordered.salt if shown else None,
        )
        return replace(plain, **changes)

    def first(self, ordered: Ordered, segment: int, papers: Any, data: bytes, **fields: Any) -> tuple[Advance, bytes]:
        written = canonical.encode(papers)
        shown = segment in {0, len(self.ends) - 1}
        request = canonical_bytes(ordered.request) if shown else b""
        role = "infer" if isinstance(papers, InferencePapers) else "check"
        header = Advance(
            ordered.order_id,
            segment,
            role,
            fields.pop("start", 0),
            fields.pop("count"),
            papers_size=len(written),
            request_size=len(request),
            **fields,
        )
        return header, written + request + data

    # ---- inference

    async def infer(self, ordered: Ordered, *, alone: bool = True, until: int = 1 << 16) -> Ordered:
        """The whole answer, or so many tokens of it; a single segment goes on alone unless told otherwise."""
        if len(self.ends) == 1 and alone:
            return await self._infer_alone(ordered, until)
        parts = len(self.ends)
        ordered.rows, ordered.ends = [b""] * parts, [None] * parts
        start, tokens = 0, list(ordered.request.prompt_tokens)
        finished = None
        while finished is None and len(ordered.tokens) < until:
            data, upstream = tokens_to_bytes(tokens), None
            for segment in range(parts):
                emit = segment == parts - 1
                fields = {"count": len(tokens), "emit": emit, "upstream": upstream}
                if start == 0:
                    header, payload = self.first(ordered, segment, self.papers(ordered, segment), data, **fields)
                else:
                    header = Advance(ordered.order_id, segment, "infer", start, **fields)
                    payload = data
                reply, rows = await self.nodes[ordered.nodes[segment]].ask(header, payload)
                ordered.rows[segment] += rows
                ordered.ends[segment] = upstream = reply.row
                data = (tokens_to_bytes(tokens) if segment == 0 else b"") + rows
            start, tokens = start + len(tokens), [reply.token]
            ordered.tokens.append(reply.token)
            finished = reply.finished
        return ordered

    async def _infer_alone(self, ordered: Ordered, until: int) -> Ordered:
        node = self.nodes[ordered.nodes[0]]
        prompt = ordered.request.prompt_tokens
        header, payload = self.first(
            ordered, 0, self.papers(ordered, 0), tokens_to_bytes(prompt), count=len(prompt), emit=True
        )
        reply, rows = await node.ask(header, payload)
        ordered.rows, ordered.ends, ordered.tokens = [rows], [reply.row], [reply.token]
        finished, position = reply.finished, len(prompt)
        while finished is None and len(ordered.tokens) < until:
            most = min(64, until - len(ordered.tokens))
            part = await node.write_on(ordered.order_id, position, most)
            ordered.tokens += part.tokens
            ordered.rows[0] += part.rows
            ordered.ends, position, finished = [part.row], position + len(part.tokens), part.finished
        return ordered

    def conclude_message(self, ordered: Ordered, segment: int) -> tuple[Conclude, bytes]:
        last = segment == len(self.ends) - 1
        count = len(ordered.tokens) if last else 0
        header = Conclude(ordered.order_id, segment, ordered.positions, count)
        return header, tokens_to_bytes(ordered.tokens) if last else b""

    async def conclude(self, ordered: Ordered) -> Ordered:
        ordered.results = []
        for segment, node in enumerate(ordered.nodes):
            said, word = await self.nodes[node].ask(*self.conclude_message(ordered, segment))
            ordered.last_row, ordered.imprints = said.last_row, said.imprints
            ordered.results.append(canonical.decode(Signed[Result], word, 1 << 16))
        return ordered

    async def serve(self, ordered: Ordered | None = None, **changes: Any) -> Ordered:
        """From the order to the scheduler's draw."""
        return self.draw(await self.conclude(await self.infer(ordered or self.order(**changes))))

    def draw(self, ordered: Ordered) -> Ordered:
        """The scheduler's word over the results."""
        results = [one.message for one in ordered.results]
        ordered.draw_proof = vrf.prove(VRF_SECRET, messages.draw_alpha(ordered.order_id))
        beta = Hash32(vrf.proof_to_hash(ordered.draw_proof))
        draw = Draw(ordered.order_id, messages.results_hash(results), beta, self.ground.block)
        ordered.draw = sign(draw, DOMAIN, SCHEDULER_KEY)
        return ordered

    # ---- checks

    def drawn(self, ordered: Ordered) -> tuple[Any, ...]:
        assert ordered.draw is not None
        order = ordered.order.message
        results = [one.message for one in ordered.results]
        beta = ordered.draw.message.beta
        return checks.verifiers(order, results, ordered.secrets.draw, beta, nodes=ordered.nodes, view=self.view(order))

    def check_papers(self, ordered: Ordered, segment: int, verifier: Address | None, **changes: Any) -> CheckPapers:
        assert ordered.draw is not None
        pay = None
        if verifier is not None:
            result = ordered.results[segment].message
            reward = prices.check_reward(self.view(ordered.order.message).rules, prices.positions(result))
            seats = self.drawn(ordered)[segment].seats[verifier]
            pay = self.pay(ordered, verifier, segment, Work.CHECK, reward * seats)
        shown = segment in {0, len(self.ends) - 1}
        plain = CheckPapers(
            order=ordered.order,
            tab=CLIENT_TAB,
            admission=ordered.admission,
            nodes=ordered.nodes,
            infer_proof=ordered.infer_proof,
            results=tuple(ordered.results),
            draw=ordered.draw,
            draw_proof=ordered.draw_proof,
            secret=ordered.secrets.draw,
            pay=pay,
            head_salt=ordered.head_salt,
            salt=ordered.salt if shown else None,
        )
        return replace(plain, **changes)

    def check_message(self, ordered: Ordered, segment: int, verifier: Address) -> tuple[Advance, bytes]:
        data = tokens_to_bytes(ordered.sequence) if segment <= 1 else b""
        upstream = None
        if segment:
            data, upstream = data + ordered.rows[segment - 1], ordered.ends[segment - 1]
        papers = self.check_papers(ordered, segment, verifier)
        return self.first(ordered, segment, papers, data, count=ordered.positions, upstream=upstream)

    def recommit_message(self, ordered: Ordered, segment: int) -> tuple[Recommit, bytes]:
        last = segment == len(self.ends) - 1
        header = Recommit(ordered.order_id, segment, ordered.positions, len(ordered.tokens) if last else 0)
        return header, tokens_to_bytes(ordered.tokens) if last else b""

    def judge_message(self, ordered: Ordered, segment: int) -> tuple[Judge, bytes]:
        row = ordered.ends[segment]
        header = Judge(ordered.order_id, segment, ordered.positions, 0, ordered.positions, row)
        return header, ordered.rows[segment]

    async def verify(
        self, ordered: Ordered, segment: int, verifier: Address
    ) -> tuple[Signed[TraceCommitment], Signed[Verdict]]:
        node = self.nodes[verifier]
        await node.ask(*self.check_message(ordered, segment, verifier))
        _, hidden = await node.ask(*self.recommit_message(ordered, segment))
        header, word = await node.ask(*self.judge_message(ordered, segment))
        assert isinstance(header, Judged)
        return (
            canonical.decode(Signed[TraceCommitment], hidden, 1 << 16),
            canonical.decode(Signed[Verdict], word[: len(word) - header.traces], 1 << 16),
        )

    def unveil_message(
        self, ordered: Ordered, segment: int, shown: Iterable[Signed[TraceCommitment]], *, infers: bool
    ) -> tuple[Unveil, bytes]:
        check = self.check_papers(ordered, segment, None) if infers else None
        papers = canonical.encode(Commitments(ordered.secrets.tiles, tuple(shown), check))
        return Unveil(ordered.order_id, segment, "infer" if infers else "check", len(papers)), papers

    async def open(self, ordered: Ordered, segment: int, operator: Address, shown: Any, *, infers: bool) -> Opened:
        message = self.unveil_message(ordered, segment, shown, infers=infers)
        _, sealed = await self.nodes[operator].ask(*message)
        context = b"troth opening " + ordered.order_id + bytes([segment]) + bytes.fromhex(operator[2:])
        return canonical.decode(Opened, sealing.unseal(sealed, REPLY_SECRET, context), 1 << 20)

    async def check(self, ordered: Ordered, segment: int) -> Check:
        commitments, verdicts = {}, {}
        for verifier in self.drawn(ordered)[segment].seats:
            commitments[verifier], verdicts[verifier] = await self.verify(ordered, segment, verifier)
        shown = list(commitments.values())
        node = await self.open(ordered, segment, ordered.nodes[segment], shown, infers=True)
        opened = {one: await self.open(ordered, segment, one, shown, infers=False) for one in commitments}
        promises = {one: ordered.pays[one, segment, Work.CHECK].promise for one in commitments}
        return Check(promises, commitments, verdicts, node, opened)

    def journey(self, ordered: Ordered, parts: tuple[Check, ...] | None = None) -> Journey:
        """What everybody signed, for ``life.live``."""
        order = ordered.order.message
        before = tabs.PayeeBook(tabs.first_voucher(order.tab))
        hashed = output_hash(ordered.salt, ordered.tokens)
        promises = tuple(
            ordered.pays[node, segment, Work.INFERENCE].promise for segment, node in enumerate(ordered.nodes)
        )
        return Journey(
            order=ordered.order,
            voucher=ordered.voucher,
            book=before,
            admission=ordered.admission,
            nodes=ordered.nodes,
            infer_proof=ordered.infer_proof,
            promises=promises,
            results=tuple(ordered.results),
            answer=Answer(len(ordered.request.prompt_tokens), len(ordered.tokens), hashed),
            draw=ordered.draw,
            draw_proof=ordered.draw_proof,
            seen_at=self.ground.block,
            secret=ordered.secrets.draw if parts is not None else None,
            second_secret=ordered.secrets.tiles if parts is not None else None,
            checks=parts,
        )

    # ---- money

    async def acknowledge(self, ordered: Ordered, node: Address, segment: int, work: Work, fee: int) -> None:
        """Pay one promise, and tell the node."""
        promise = ordered.pays[node, segment, work].promise.message
        self.payers[node] = tabs.acknowledge(self.payers[node], promise.sequence, fee)
        await self.nodes[node].ask(Redeemable(), self.voucher_of(node))

    def voucher_of(self, node: Address) -> bytes:
        return canonical.encode(sign(self.payers[node].voucher, DOMAIN, SCHEDULER_KEY))


def build(
    folder: Path,
    *,
    ends: tuple[int, ...] = (2,),
    nodes: int = 12,
    limits: LendingLimits | None = None,
    locks: bool = False,
    ask: Ask = ASK,
    model: ModelDescriptor = MODEL,
    **changes: Any,
) -> Network:
    execution_class = execution_class_of(model, **changes)
    secrets = [node_secret(number) for number in range(nodes)]
    addresses = [typed_data.address_of(secret) for secret in secrets]
    ground = FakeGround(state_of(addresses, execution_class, ends, ask, model))
    class_id = messages.state_hash(execution_class)
    made = {
        typed_data.address_of(secret): Node(
            secret, folder / str(number), ground, class_id, limits or LendingLimits(), locks=locks
        )
        for number, secret in enumerate(secrets)
    }
    return Network(made, ground, execution_class, ends, tabs.PayerBook(tab_id(CLIENT_TAB)), model=model)


def verified(ordered: Ordered, segment: int, row_bytes: int) -> RowHashes:
    """The chain that a node's rows and its last signature make."""
    signature = ordered.ends[segment]
    assert signature is not None
    bound = ordered.sequence if segment == 0 else None
    start = RowHashes(ordered.order_id, segment)
    return verify_rows(
        start, ordered.rows[segment], row_bytes, signature, signer=ordered.nodes[segment], domain=DOMAIN, tokens=bound
    )
