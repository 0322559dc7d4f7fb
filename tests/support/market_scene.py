"""A market in memory: one class, a group of nodes for each segment, a client's tab, one honest order's journey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from troth.protocol import typed_data, vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks, draws, messages, prices, tabs
from troth.protocol.market.checks import Answer, Opened, OrderView
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.life import Check, Journey
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.messages import Signed, market_domain, sign
from troth.protocol.market.signed import (
    Admission,
    Draw,
    Opinion,
    Order,
    Promise,
    Result,
    TraceCommitment,
    Verdict,
    Work,
)
from troth.protocol.market.types import Ask, ExecutionClass, GroupEntry, Rules, Tab, TabState
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, address_from_bytes, pack_ends

CLIENT_KEY, TAB_KEY, SCHEDULER_KEY = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
VRF_SECRET = b"\x04" * 32
DOMAIN = market_domain(31337, address_from_bytes(b"\xba" * 20))
TAB = Tab(*(typed_data.address_of(key) for key in (CLIENT_KEY, SCHEDULER_KEY, TAB_KEY)))
BLOCK, TIME, SEASONING, LAG = 1_000, 1_800_000_000, 100, 50
PROMPT, WRITTEN, COLUMNS = 30, 12, 64
MODEL = ModelDescriptor("llama", 12, COLUMNS, 300, 0, Hash32(b"\x51" * 32))
REQUEST_HASH = Hash32(b"\x5e" * 32)
OUTPUT_HASH = Hash32(b"\x0a" * 32)


def hash_of(text: str) -> Hash32:
    return Hash32(keccak256(text.encode()))


def execution_class(**changes: Any) -> ExecutionClass:
    plain = ExecutionClass(
        model=messages.state_hash(MODEL),
        name="torch cpu float32",
        dtype=0,
        exact=False,
        mantissa_bits=10,
        steps=8,
        theta=9_000,
        tiles=2,
        candidates=2,
        verifiers=3,
        reviewers=15,
        check_price=600_000_000,
        fee_cap=100_000,
        least_check_rate=50_000,
        honest_share=8_000,
        penalty=4_000_000,
        seat=20_000_000,
        seat_cap=10,
        state_cut=1_000,
        margin_cut=20_000,
        second_cut=4_000_000,
        pool_limit=3,
        pool_window=50_000,
        calibration=ZERO_HASH,
    )
    return replace(plain, **changes)


def rules(**changes: Any) -> Rules:
    return prices.rules_of(execution_class(**changes), hidden_size=COLUMNS, layers=MODEL.layers)


def node_key(number: int) -> bytes:
    return bytes([100 + number]) * 32


@cache
def node_of(number: int) -> Address:
    return typed_data.address_of(node_key(number))


def owner_of(number: int) -> Address:
    return address_from_bytes(bytes([number]) * 20)


def group_of(numbers: range, *, seats: int = 10, asks: Ask | None = None) -> GroupHistory:
    """Nodes that joined long ago, each with its own owner."""
    operators = [node_of(number) for number in numbers]
    entries = tuple((GroupEntry(operator, 1, 1, seats, 0),) for operator in operators)
    owners = {operator: owner_of(number) for number, operator in zip(numbers, operators, strict=True)}
    asked = asks or Ask(300_000_000, 30_000_000, 600_000_000)
    return GroupHistory(((1, len(operators)),), entries, owners, dict.fromkeys(operators, ((1, asked),)))


@dataclass(frozen=True)
class Scene:
    """What a test needs to play an order by the rules; ``parts`` are the ends of its segments."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[int, ...] = (12,)
    nodes: int = 24
    check_rate: int = 1_000_000
    secrets: Secrets = Secrets(hash_of("first"), hash_of("second"))  # noqa: RUF009

    @cached_property
    def view(self) -> OrderView:
        group = group_of(range(self.nodes))
        return OrderView(
            domain=DOMAIN,
            execution_class=messages.state_hash(execution_class(**self.changes)),
            rules=rules(**self.changes),
            vrf_key=vrf.public_key(VRF_SECRET),
            tab=TAB,
            groups=(group,) * len(self.parts),
            block=BLOCK,
            time=TIME,
            lag=LAG,
            seasoning=SEASONING,
            reference_age=200,
            tab_state=TabState(balance=1_000_000, known=True),
        )

    @cached_property
    def order(self) -> Order:
        return Order(
            tab=messages.tab_id(TAB),
            sequence=1,
            execution_class=self.view.execution_class,
            request_hash=REQUEST_HASH,
            ends=pack_ends(self.parts),
            prompt_price=1_000_000_000,
            cached_price=100_000_000,
            written_price=2_000_000_000,
            node_share=8_000,
            max_fee=10_000,
            check_rate=self.check_rate,
            deadline=TIME + 60,
            reference_block=BLOCK - 10,
            draw_hash=self.secrets.draw_hash,
            tiles_hash=self.secrets.tiles_hash,
            reply_key=hash_of("reply"),
        )

    @cached_property
    def order_id(self) -> Hash32:
        return messages.order_id(self.order, DOMAIN)

    def trace(self, noise: float = 0.0, seed: int = 0) -> CommittedTrace:
        true = np.random.default_rng(8).normal(size=(PROMPT + WRITTEN - 1, COLUMNS))
        other = np.random.default_rng(seed).normal(size=true.shape)
        states = (true * (1 + noise * other)).astype(np.float32)
        return TileLayout(self.order_id, self.view.execution_class, *states.shape, Dtype.FLOAT32).commit(states)

    def admitted(self) -> Journey:
        """The journey up to the promises."""
        order, view = self.order, self.view
        proof = vrf.prove(VRF_SECRET, messages.infer_alpha(self.order_id))
        nodes = tuple(group[0] for group in checks.candidates(order, proof, view))
        book, number = tabs.order_next(tabs.PayerBook(order.tab), order.max_fee, view.tab_state)
        assert number == order.sequence
        promises = tuple(self.promise(segment, Work.INFERENCE, 5_000) for segment in range(len(nodes)))
        return Journey(
            order=sign(order, DOMAIN, TAB_KEY),
            voucher=sign(book.voucher, DOMAIN, TAB_KEY),
            book=tabs.PayeeBook(tabs.first_voucher(order.tab)),
            admission=sign(Admission(self.order_id, messages.nodes_hash(nodes), BLOCK), DOMAIN, SCHEDULER_KEY),
            nodes=nodes,
            infer_proof=proof,
            promises=promises,
        )

    def promise(self, segment: int, work: Work, price: int) -> Signed[Promise]:
        asks = (100_000_000, 10_000_000, 200_000_000)
        promised = Promise(
            hash_of("node tab"), 1, self.order_id, segment, work, self.order.reference_block, *asks, price
        )
        return sign(promised, DOMAIN, SCHEDULER_KEY)

    def served(self, trace: CommittedTrace | None = None) -> Journey:
        """The journey up to the scheduler's draw; every segment has the same trace."""
        journey = self.admitted()
        trace = trace or self.trace()
        results = tuple(self.result(segment, trace) for segment in range(len(self.parts)))
        signed = tuple(sign(result, DOMAIN, key_of(node)) for result, node in zip(results, journey.nodes, strict=True))
        proof = vrf.prove(VRF_SECRET, messages.draw_alpha(self.order_id))
        beta = Hash32(vrf.proof_to_hash(proof))
        draw = Draw(self.order_id, messages.results_hash(results), beta, BLOCK)
        return replace(
            journey,
            results=signed,
            answer=Answer(PROMPT, WRITTEN, OUTPUT_HASH),
            draw=sign(draw, DOMAIN, SCHEDULER_KEY),
            draw_proof=proof,
            seen_at=BLOCK,
            secret=self.secrets.draw,
        )

    def result(self, segment: int, trace: CommittedTrace) -> Result:
        last = segment == len(self.parts) - 1
        return Result(
            order=self.order_id,
            segment=segment,
            input_head=REQUEST_HASH if segment == 0 else hash_of(f"head {segment}"),
            output_head=hash_of(f"head {segment + 1}"),
            prompt=PROMPT,
            cached=0,
            written=WRITTEN,
            trace_commitment=messages.trace_commitment(Hash32(trace.root), hash_of("node salt")),
            output_hash=OUTPUT_HASH if last else ZERO_HASH,
        )

    def checked(self, *, node: CommittedTrace | None = None, opinion: Opinion = Opinion.ACCEPT) -> Journey:
        """The whole journey: ``node`` is the trace served; verifiers compute the true one and say ``opinion``."""
        journey = self.served(node)
        assert journey.results is not None
        results = [signed.message for signed in journey.results]
        drawn = self.verifiers(journey)
        parts = tuple(
            self.check(result, seats, node or self.trace(), opinion)
            for result, seats in zip(results, drawn, strict=True)
        )
        return replace(journey, second_secret=self.secrets.tiles, checks=parts)

    def verifiers(self, journey: Journey) -> tuple[draws.DrawnSeats, ...]:
        """Who checks the journey's results."""
        assert journey.results is not None
        assert journey.draw is not None
        results = [signed.message for signed in journey.results]
        beta = journey.draw.message.beta
        return checks.verifiers(
            self.order, results, self.secrets.draw, beta, nodes=journey.nodes, view=self.view, silent=journey.silent
        )

    def check(self, result: Result, drawn: draws.DrawnSeats, node: CommittedTrace, opinion: Opinion) -> Check:
        traces = {name: self.trace(1e-7, seed) for seed, name in enumerate(drawn.seats, start=1)}
        hidden = {
            name: messages.verifier_commitment(
                self.order_id, result.segment, name, root=Hash32(trace.root), salt=hash_of(name)
            )
            for name, trace in traces.items()
        }
        exact = self.view.rules.exact
        tiles = () if exact else checks.check_tiles(self.secrets.tiles, list(hidden.values()), result, self.view.rules)

        def opened(trace: CommittedTrace, salt: Hash32) -> Opened:
            root = Hash32(trace.root)
            return Opened(root, salt) if exact else Opened(root, salt, trace.open(tiles))

        reward = prices.check_reward(self.view.rules, prices.positions(result))
        return Check(
            promises={name: self.promise(result.segment, Work.CHECK, reward * n) for name, n in drawn.seats.items()},
            commitments={
                name: sign(
                    TraceCommitment(self.order_id, result.segment, typed_data.struct_hash(result), one),
                    DOMAIN,
                    key_of(name),
                )
                for name, one in hidden.items()
            },
            verdicts={
                name: sign(self.verdict(result, one, opinion), DOMAIN, key_of(name)) for name, one in hidden.items()
            },
            node=opened(node, hash_of("node salt")),
            opened={name: opened(trace, hash_of(name)) for name, trace in traces.items()},
        )

    def verdict(self, result: Result, commitment: Hash32, opinion: Opinion) -> Verdict:
        hashed = typed_data.struct_hash(result)
        return Verdict(self.order_id, result.segment, hashed, commitment, opinion, opinion is Opinion.REJECT)


KEYS: dict[Address, bytes] = {node_of(number): node_key(number) for number in range(64)}


def key_of(operator: Address) -> bytes:
    return KEYS[operator]
