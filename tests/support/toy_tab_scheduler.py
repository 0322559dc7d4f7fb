"""A market in memory with schedulers that really sign: keys, VRF, drawn nodes and verifiers, a toy model, real HTTP.

The chain is a state that a test moves on by hand. A scheduler serves over a socket of its own and does everything
right until a test changes what it says: ``tamper`` gets the lines of an order or of its check, and gives back others.
Among lines, an event is awaited, None stalls for ever, bytes are sent as they are, and an exception ends the stream.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from support.byte_language import LANGUAGE, VOCABULARY, architecture, language_files, tokens_of

from troth.chain.errors import FollowTimeout
from troth.chain.keystore import DEMO_SCRYPT_N, Key
from troth.client.home import Home
from troth.client.https_calls import Calls
from troth.client.market_table import MarketTable
from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal
from troth.client.orders.session import PayerSession
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import Keyring
from troth.client.tabs.store import TabStore
from troth.protocol import typed_data, vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market import bodies, canonical, checks, life, lottery, messages, prices, shipped, tabs
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.bodies import (
    Acknowledgement,
    Admitted,
    Checking,
    Committed,
    Lottery,
    OpenOrder,
    Recovered,
    Recovery,
    Results,
    ShownSecret,
    Submission,
    TabQuery,
    Verdicts,
)
from troth.protocol.market.checks import Opened, OrderView
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidVoucher
from troth.protocol.market.events import Deployed
from troth.protocol.market.last_row import LastRow
from troth.protocol.market.messages import Signed, market_domain, sign, tab_id
from troth.protocol.market.prices import rules_of
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.state import Party, State, TabRecord, account_id
from troth.protocol.market.types import (
    NO_HASH,
    Admission,
    Ask,
    Draw,
    Entry,
    ExecutionClass,
    Opinion,
    PotKind,
    Result,
    Role,
    Row,
    Tab,
    TabState,
    TraceCommitment,
    Verdict,
)
from troth.protocol.market.views import view_of
from troth.protocol.request import Request as Ordered
from troth.protocol.request import from_canonical_bytes, output_hash, request_hash
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import (
    ZERO_HASH,
    Address,
    Hash32,
    ModelDescriptor,
    Segment,
    address_from_bytes,
    address_to_bytes,
)
from troth.transport.sealing import seal
from troth.transport.server import TlsServer, serving

CHAIN_ID, BLOCK, COLUMNS = 31337, 1_000, 16
PARAMETERS = replace(shipped.DEMO, lag=50, seasoning=100, reference_age=200, summons_window=6)
FACTORY = address_from_bytes(b"\xfa" * 20)
CONTRACTS = contracts_of(FACTORY, PARAMETERS)
DOMAIN = market_domain(CHAIN_ID, CONTRACTS.bank)
META = LogMeta(1, 0, ZERO_HASH, ZERO_HASH)
MODEL = ModelDescriptor(architecture(language_files()), 2, COLUMNS, VOCABULARY, 0, Hash32(b"\x51" * 32))
ASK = Ask(300_000_000, 30_000_000, 600_000_000)
PAYER = Key.from_secret(b"\x01" * 32)
DEPOSIT = 1_000_000
HEAD_SALT = Hash32(b"\x4d" * 32)
TABLE = MarketTable(FACTORY, stall=5, reviewers=5, seats=10, outside=5_000)


def execution_class(**changes: Any) -> ExecutionClass:
    plain = ExecutionClass(
        model=messages.state_hash(MODEL),
        name="toy float32",
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


CLASS = execution_class()
CLASS_ID = messages.state_hash(CLASS)
RULES = rules_of(CLASS, hidden_size=COLUMNS, layers=MODEL.layers)
NODE_KEYS = {typed_data.address_of(bytes([60 + n]) * 32): bytes([60 + n]) * 32 for n in range(24)}


def owner_of(number: int) -> Address:
    return address_from_bytes(bytes([number + 1]) * 20)


def party_of(operator: Address, role: Role, owner: Address, **more: Any) -> Party:
    return Party(operator, owner, role, owner, "https://127.0.0.1:1", ZERO_HASH, META, **more)


class World:
    """The chain: a state and a block. It is the follower of its sessions, too."""

    def __init__(self, ends: tuple[int, ...] = (2,)) -> None:
        self.ends = ends
        self.block = BLOCK
        self.failure: Exception | None = None
        self.trouble = ""
        self.unseen = 0
        self.state = self._with_nodes(
            State(
                deployed=Deployed(ZERO_HASH, CONTRACTS, PARAMETERS, META),
                models=State().models.with_item(CLASS.model, MODEL),
                classes=State().classes.with_item(CLASS_ID, CLASS),
            )
        )

    def _with_nodes(self, state: State) -> State:
        first = 0
        for end in self.ends:
            group = group_id(CLASS_ID, Segment(first, end))
            entries, asks, parties = state.entries, state.asks, state.parties
            for number, node in enumerate(NODE_KEYS):
                entries = entries.with_item((group, number), (Entry(node, 1, 1, 10, 0),))
                asks = asks.with_item((group, node), ((1, ASK),))
                parties = parties.with_item(node, party_of(node, Role.NODE, owner_of(number), execution_class=CLASS_ID))
            sizes = state.sizes.with_item(group, ((1, len(NODE_KEYS)),))
            state = replace(state, entries=entries, asks=asks, parties=parties, sizes=sizes)
            first = end
        return state

    def register(self, scheduler: ToyScheduler) -> None:
        party = party_of(scheduler.key.address, Role.SCHEDULER, owner_of(200), vrf_key=vrf.public_key(scheduler.vrf))
        self.state = replace(self.state, parties=self.state.parties.with_item(scheduler.key.address, party))

    def open_tab(self, tab: Tab, deposit: int = DEPOSIT) -> Hash32:
        identifier = tab_id(tab)
        record = self.state.tabs.get(identifier) or TabRecord(tab)
        pots = self.state.pots.with_item((PotKind.TAB, identifier), deposit)
        self.state = replace(self.state, tabs=self.state.tabs.with_item(identifier, record), pots=pots)
        return identifier

    def redeem(self, identifier: Hash32, spent: int) -> int:
        """What a voucher brings now."""
        state = self.state.tab_state(identifier)
        after, paid = tabs.redeem(state, spent)
        record = replace(self.state.tabs[identifier], redeemed=after.redeemed)
        pots = self.state.pots.with_item((PotKind.TAB, identifier), after.balance)
        self.state = replace(self.state, tabs=self.state.tabs.with_item(identifier, record), pots=pots)
        return paid

    def stake(self, operator: Address, amount: int) -> None:
        pots = self.state.pots.with_item((PotKind.STAKE, account_id(operator)), amount)
        self.state = replace(self.state, pots=pots)

    # ---- as a follower

    async def catch_up(self) -> State:
        return self.state

    recent = catch_up

    async def reach(self, block: int, timeout: float) -> State:
        await asyncio.sleep(0)
        if block > self.block:
            raise FollowTimeout(f"Block {block} was not reached", f"at block {self.block}", "")
        return self.state


@dataclass
class ToyOrder:
    """One order at a scheduler, with everything that is signed about it."""

    submission: Submission
    identifier: Hash32
    request: Ordered
    view: OrderView
    nodes: tuple[Address, ...]
    infer_proof: bytes
    admission: Signed[Admission]
    tokens: list[int]
    traces: list[CommittedTrace]
    results: tuple[Signed[Result], ...]
    draw: Signed[Draw]
    draw_proof: bytes
    lines: list[Any] = field(default_factory=list)
    check: list[Any] = field(default_factory=list)
    secret: Hash32 | None = None
    second_secret: Hash32 | None = None

    @property
    def order(self) -> Any:
        return self.submission.order.message

    @property
    def not_drawn(self) -> Address:
        """A node that the order's draw passes over, as another candidate too."""
        drawn = {node for group in checks.candidates(self.order, self.infer_proof, self.view) for node in group}
        return next(node for node in NODE_KEYS if node not in drawn)

    @property
    def given(self) -> list[Result]:
        return [one.message for one in self.results]


Tamper = Callable[[ToyOrder, list[Any]], list[Any]]


def honest(_order: ToyOrder, lines: list[Any]) -> list[Any]:
    return lines


def node_salt(order: Hash32) -> Hash32:
    return Hash32(keccak256(b"node salt" + order))


def verifier_salt(node: Address) -> Hash32:
    return Hash32(keccak256(b"verifier salt" + node.encode()))


class ToyScheduler:
    """``answer`` is what its model says to everything; a prompt that ends with a part of it is continued."""

    def __init__(self, world: World, number: int = 0, answer: str = "hello world") -> None:
        self.world = world
        self.key = Key.from_secret(bytes([3 + number]) * 32)
        self.vrf = bytes([4 + number]) * 32
        self.answer = tokens_of(answer)
        self.books: dict[Hash32, tabs.PayeeBook] = {}
        self.vouchers: dict[Hash32, Signed[Any]] = {}
        self.orders: dict[Hash32, ToyOrder] = {}
        self.served: list[Hash32] = []
        self.noise = 1e-7
        self.node_noise = 0.0
        self.opinion = Opinion.ACCEPT
        self.tamper: Tamper = honest
        self.tamper_check: Tamper = honest
        self.tamper_tiles: Callable[[ToyOrder, list[dict[str, Any]]], list[dict[str, Any]]] = lambda _order, body: body
        self.tamper_row: Callable[[ToyOrder, LastRow], LastRow | JSONResponse] = lambda _order, row: row
        self.refusing: dict[str, Any] | None = None
        self.checks = 0
        self.delay = 0.0
        self.admitting = asyncio.Event()
        self.admitting.set()
        self.prices: dict[str, Any] = {}
        self.calls_of: list[str] = []
        world.register(self)

    # ---- what it computes

    def states(self, rows: int, noise: float, seed: int) -> Any:
        true = np.random.default_rng(8).normal(size=(rows, COLUMNS))
        other = np.random.default_rng(seed).normal(size=true.shape)
        return (true * (1 + noise * other)).astype(np.float32)

    def trace(self, order: Hash32, rows: int, noise: float, seed: int) -> CommittedTrace:
        return TileLayout(order, CLASS.model, rows, COLUMNS, Dtype.FLOAT32).commit(self.states(rows, noise, seed))

    def chain(self, order: Hash32, segment: int, prompt: Any, tokens: Any) -> tuple[RowHashes, Row]:
        bound = [*prompt, *tokens[:-1]]
        data = self.states(len(bound), self.node_noise, 1).tobytes()
        return RowHashes(order, segment).extend(data, 4 * COLUMNS, None if segment else bound)

    def last_row(self, one: ToyOrder) -> LastRow:
        segment, prompt = len(one.nodes) - 1, one.request.prompt_tokens
        _, last = self.chain(one.identifier, segment, prompt, one.tokens)
        states = self.states(len(prompt) + len(one.tokens) - 1, self.node_noise, 1)
        return LastRow(states[-1].tobytes(), last.previous, HEAD_SALT)

    def write(self, request: Ordered) -> list[int]:
        """What is left of the answer after the prompt, at most as much as was ordered."""
        prompt = list(request.prompt_tokens)
        done = max(
            (n for n in range(len(self.answer)) if n <= len(prompt) and prompt[len(prompt) - n :] == self.answer[:n]),
            default=0,
        )
        return self.answer[done:][: request.max_tokens]

    # ---- an order

    def take(self, submission: Submission) -> ToyOrder:
        """Admit an order by all the rules, serve it and draw over it; raises a ProtocolError where they forbid it."""
        order, tab = submission.order.message, submission.tab
        world = self.world
        view = view_of(world.state, order, tab, chain_id=CHAIN_ID, block=world.block, time=int(time.time()))
        life.validate_order(submission.order, view)
        request = from_canonical_bytes(submission.request)
        assert request_hash(request, submission.salt) == order.request_hash
        book = self.books.get(order.tab, tabs.PayeeBook(tabs.first_voucher(order.tab)))
        word = submission.voucher.require(DOMAIN, tab.key)
        if word.sequence >= book.best.sequence and word.spent >= book.best.spent:
            book = tabs.accept(book, word)
            self.vouchers[order.tab] = submission.voucher
        self.books[order.tab] = tabs.admit(book, order.sequence, order.max_fee, view.tab_state)
        identifier = messages.order_id(order, DOMAIN)
        proof = vrf.prove(self.vrf, messages.infer_alpha(identifier))
        nodes = tuple(group[0] for group in checks.candidates(order, proof, view))
        admission = sign(Admission(identifier, messages.nodes_hash(nodes), world.block), DOMAIN, self.key.secret)
        tokens = self.write(request)
        made = self._served(submission, request, identifier, view, nodes, tokens)
        results, traces = made
        made_draw, draw_proof = self.drawn(identifier, [one.message for one in results])
        placed = ToyOrder(
            submission,
            identifier,
            request,
            view,
            nodes,
            proof,
            admission,
            tokens,
            traces,
            results,
            made_draw,
            draw_proof,
        )
        placed.lines = self.tamper(placed, self.honest_lines(placed))
        failed = any(isinstance(line, dict) and line["type"] == "failed" for line in placed.lines)
        fee = 0 if failed else prices.fee(order, view.rules, len(results), results[-1].message)
        self.books[order.tab] = tabs.served(self.books[order.tab], order.sequence, fee)
        self.orders[identifier] = placed
        self.served.append(identifier)
        return placed

    def _served(
        self, submission: Submission, request: Ordered, identifier: Hash32, view: OrderView, nodes: Any, tokens: Any
    ) -> Any:
        traces = [
            self.trace(identifier, len(request.prompt_tokens) + len(tokens) - 1, self.node_noise, 1) for _ in nodes
        ]
        results = tuple(
            sign(
                self.result(submission, request, identifier, segment, tokens, trace, last=segment == len(nodes) - 1),
                DOMAIN,
                NODE_KEYS[node],
            )
            for segment, (node, trace) in enumerate(zip(nodes, traces, strict=True))
        )
        return results, traces

    def result(
        self,
        submission: Submission,
        request: Ordered,
        identifier: Hash32,
        segment: int,
        tokens: Any,
        trace: Any,
        *,
        last: bool,
    ) -> Result:
        links = [self.chain(identifier, one, request.prompt_tokens, tokens)[0].link for one in range(segment + 1)]
        heads = [checks.head(identifier, HEAD_SALT, link) for link in links]
        head, before = heads[-1], heads[-2] if segment else submission.order.message.request_hash
        return Result(
            order=identifier,
            segment=segment,
            input_head=before,
            output_head=head,
            prompt=len(request.prompt_tokens) - self.cached(request),
            cached=self.cached(request),
            written=len(tokens),
            trace_commitment=messages.trace_commitment(Hash32(trace.root), node_salt(identifier)),
            output_hash=output_hash(submission.salt, tokens) if last else ZERO_HASH,
        )

    def cached(self, request: Ordered) -> int:
        return 3 if len(request.prompt_tokens) > 3 else 0

    def drawn(self, identifier: Hash32, results: Sequence[Result], block: int = 0) -> tuple[Signed[Draw], bytes]:
        proof = vrf.prove(self.vrf, messages.draw_alpha(identifier))
        beta = Hash32(vrf.proof_to_hash(proof))
        named = Draw(identifier, messages.results_hash(results), beta, block or self.world.block)
        return sign(named, DOMAIN, self.key.secret), proof

    def honest_lines(self, one: ToyOrder) -> list[Any]:
        ended = one.tokens[-1] in one.request.end_tokens
        return [
            line_of("admitted", Admitted(one.admission, one.nodes, one.infer_proof)),
            *({"type": "token", "position": n, "id": token} for n, token in enumerate(one.tokens)),
            line_of("results", Results("end" if ended else "length", one.results)),
            line_of("draw", Lottery(one.draw, one.draw_proof)),
        ]

    # ---- its check

    def seats(self, one: ToyOrder, secret: Hash32) -> tuple[DrawnSeats, ...]:
        return checks.verifiers(one.order, one.given, secret, one.draw.message.beta, nodes=one.nodes, view=one.view)

    def verifier_trace(self, one: ToyOrder, node: Address) -> CommittedTrace:
        rows = len(one.request.prompt_tokens) + len(one.tokens) - 1
        return self.trace(one.identifier, rows, self.noise, int.from_bytes(address_to_bytes(node)[:4]))

    def show(self, one: ToyOrder, secret: Hash32) -> list[Any]:
        lottery.require_draw_secret(one.order, secret)
        one.secret = secret
        if one.check:
            return one.check
        if not lottery.is_drawn(one.order, secret, one.draw.message.beta):
            one.check = self.tamper_check(one, [{"type": "undrawn"}, {"type": "end"}])
            return one.check
        self.checks += 1
        drawn = self.seats(one, secret)
        lines: list[Any] = [line_of("checking", Checking(tuple(seats.operators for seats in drawn)))]
        for segment, seats in enumerate(drawn):
            commitments, verdicts = self.said(one, segment, seats)
            lines += [
                line_of("committed", Committed(segment, commitments)),
                line_of("verdicts", Verdicts(segment, verdicts)),
            ]
        one.check = self.tamper_check(one, [*lines, {"type": "end"}])
        return one.check

    def said(self, one: ToyOrder, segment: int, seats: DrawnSeats) -> tuple[Any, Any]:
        commitments, verdicts = [], []
        for node in seats.seats:
            root = Hash32(self.verifier_trace(one, node).root)
            hidden = messages.verifier_commitment(one.identifier, segment, node, root=root, salt=verifier_salt(node))
            hashed = typed_data.struct_hash(one.given[segment])
            committed = TraceCommitment(one.identifier, segment, hashed, hidden)
            commitments.append(sign(committed, DOMAIN, NODE_KEYS[node]))
            verdicts.append(
                sign(Verdict(one.identifier, segment, hashed, hidden, self.opinion, False), DOMAIN, NODE_KEYS[node])
            )
        return tuple(commitments), tuple(verdicts)

    def tiles(self, one: ToyOrder, second: Hash32) -> list[dict[str, Any]]:
        lottery.require_tiles_secret(one.order, second)
        assert one.secret is not None
        one.second_secret = second
        body = []
        for segment, seats in enumerate(self.seats(one, one.secret)):
            hidden = [
                messages.verifier_commitment(
                    one.identifier,
                    segment,
                    node,
                    root=Hash32(self.verifier_trace(one, node).root),
                    salt=verifier_salt(node),
                )
                for node in seats.seats
            ]
            indices = checks.check_tiles(second, hidden, one.given[segment], RULES)
            opened = {
                node: Opened(
                    Hash32(self.verifier_trace(one, node).root),
                    verifier_salt(node),
                    self.verifier_trace(one, node).open(indices),
                )
                for node in seats.seats
            }
            trace = one.traces[segment]
            own = Opened(Hash32(trace.root), node_salt(one.identifier), trace.open(indices))
            body.append(
                {
                    "node": sealed(one, segment, one.nodes[segment], own),
                    "opened": {node: sealed(one, segment, node, value) for node, value in opened.items()},
                }
            )
        return self.tamper_tiles(one, body)

    # ---- HTTP

    def quotes(self) -> dict[str, Any]:
        own = {
            "class": "0x" + CLASS_ID.hex(),
            "ends": list(self.world.ends),
            "prompt_price": "1000000000",
            "cached_price": "100000000",
            "written_price": "2000000000",
            "node_share": 8_000,
            "check_rate": 50_000,
            "check_price": str(CLASS.check_price),
            "fee_cap": str(CLASS.fee_cap),
        }
        return {"data": [{"id": "toy", "name": "toy", "context_length": 512, "troth": own | self.prices}]}

    def app(self) -> FastAPI:
        app = FastAPI()
        self.offer_at(app)
        self.take_orders_at(app)
        self.keep_tabs_at(app)
        return app

    def offer_at(self, app: FastAPI) -> None:
        @app.get("/v1/prices")
        async def listed() -> Any:
            self.calls_of.append("prices")
            await asyncio.sleep(self.delay)
            return self.quotes()

        @app.get("/v1/models/{name}/tokenizer")
        async def language(name: str) -> Any:
            files = language_files()
            return {"tokenizer": files.tokenizer, "chat_template": files.chat_template, "config": files.config}

    def take_orders_at(self, app: FastAPI) -> None:
        @app.post("/v1/orders")
        async def order(request: Request) -> Any:
            self.calls_of.append("order")
            if self.refusing is not None:
                return JSONResponse({"error": self.refusing}, self.refusing.get("status", 503))
            submission = canonical.decode(Submission, await request.body(), bodies.SUBMISSION_LIMIT)
            if messages.order_id(submission.order.message, DOMAIN) in self.orders:
                return JSONResponse({"error": {"code": "already_ordered", "message": "it was taken before"}}, 409)
            await self.admitting.wait()
            try:
                placed = self.take(submission)
            except InvalidVoucher as error:
                return refused(402 if "covers" in error.what else 409, "voucher_refused", error)
            except ProtocolError as error:
                return refused(400, "invalid_order", error)
            return stream(placed.lines)

        @app.get("/v1/orders/{name}")
        async def again(name: str, request: Request) -> Any:
            self.calls_of.append("again")
            placed = self.orders.get(Hash32(bytes.fromhex(name[2:])))
            if placed is None or request.headers.get("troth-salt") != "0x" + placed.submission.salt.hex():
                return JSONResponse({"error": {"code": "unknown_order", "message": "no such order"}}, 404)
            return stream([*placed.lines, *placed.check])

        @app.get("/v1/orders/{name}/last-row")
        async def last_row(name: str, request: Request) -> Any:
            self.calls_of.append("last-row")
            placed = self.orders[Hash32(bytes.fromhex(name[2:]))]
            assert request.headers["troth-salt"] == "0x" + placed.submission.salt.hex()
            shown = self.tamper_row(placed, self.last_row(placed))
            return shown if isinstance(shown, JSONResponse) else canonical.to_json(shown)

        @app.post("/v1/orders/{name}/secret")
        async def secret(name: str, request: Request) -> Any:
            self.calls_of.append("secret")
            placed = self.orders[Hash32(bytes.fromhex(name[2:]))]
            shown = canonical.decode(ShownSecret, await request.body(), bodies.BODY_LIMIT)
            return stream(self.show(placed, shown.secret))

        @app.post("/v1/orders/{name}/tiles")
        async def tiles(name: str, request: Request) -> Any:
            self.calls_of.append("tiles")
            placed = self.orders[Hash32(bytes.fromhex(name[2:]))]
            shown = canonical.decode(ShownSecret, await request.body(), bodies.BODY_LIMIT)
            return {"segments": self.tiles(placed, shown.secret)}

    def keep_tabs_at(self, app: FastAPI) -> None:
        @app.post("/v1/vouchers")
        async def vouchers(request: Request) -> Any:
            self.calls_of.append("voucher")
            word = canonical.decode(Acknowledgement, await request.body(), bodies.BODY_LIMIT)
            identifier = tab_id(word.tab)
            book = self.books.get(identifier, tabs.PayeeBook(tabs.first_voucher(identifier)))
            try:
                self.books[identifier] = tabs.accept(book, word.voucher.require(DOMAIN, word.tab.key))
            except InvalidVoucher as error:
                return refused(409, "voucher_refused", error)
            self.vouchers[identifier] = word.voucher
            return {}

        @app.post("/v1/tabs/{name}/recover")
        async def recover(name: str, request: Request) -> Any:
            self.calls_of.append("recover")
            asked = canonical.decode(Recovery, await request.body(), bodies.BODY_LIMIT)
            identifier = Hash32(bytes.fromhex(name[2:]))
            record = self.world.state.tabs[identifier]
            typed_data.require_signer(TabQuery(identifier, asked.time), DOMAIN, asked.signature, record.tab.key)
            return canonical.to_json(self.known(identifier))

    def known(self, identifier: Hash32) -> Recovered:
        voucher = self.vouchers.get(identifier)
        open_numbers = () if voucher is None else tabs.outstanding(voucher.message)
        placed = [one for one in self.orders.values() if one.order.tab == identifier]
        shown = tuple(
            OpenOrder(
                one.submission.order, one.admission, one.nodes, one.infer_proof, one.results, one.draw, one.draw_proof
            )
            for one in placed
            if one.order.sequence in open_numbers
        )
        return Recovered(voucher, shown)


def line_of(kind: str, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bodies.line(kind, value))
    return found


def sealed(one: ToyOrder, segment: int, party: Address, value: Opened) -> str:
    context = bodies.opening_context(one.identifier, segment, address_to_bytes(party))
    return "0x" + seal(canonical.encode(value), one.order.reply_key, context).hex()


def refused(status: int, code: str, error: ProtocolError, **more: Any) -> JSONResponse:
    body = {"code": code, "message": error.what, "remedy": error.remedy, **more}
    return JSONResponse({"error": body}, status)


def stream(lines: Sequence[Any]) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for line in lines:
            if line is None:
                await asyncio.Event().wait()
            elif isinstance(line, asyncio.Event):
                await line.wait()
            elif isinstance(line, float):
                await asyncio.sleep(line)
            elif isinstance(line, Exception):
                raise line
            elif isinstance(line, bytes):
                yield line
            else:
                yield json.dumps(line).encode() + b"\n"

    return StreamingResponse(pieces(), media_type="application/x-ndjson")


# ---------------------------------------------------------------------------------------------------------- a session


@dataclass
class Stage:
    """A client's session before one or more schedulers."""

    world: World
    schedulers: list[ToyScheduler]
    session: PayerSession
    store: TabStore
    home: Home
    tabs: list[Hash32]
    clients: dict[Address, httpx.AsyncClient]

    @property
    def scheduler(self) -> ToyScheduler:
        return self.schedulers[0]

    @property
    def tab(self) -> Hash32:
        return self.tabs[0]

    def book(self, number: int = 0) -> tabs.PayerBook:
        return self.session.books.record(self.tabs[number]).book

    def state(self, number: int = 0) -> TabState:
        return self.world.state.tab_state(self.tabs[number])

    def another(self) -> tuple[PayerSession, TabStore]:
        """A second process on the same home; close its store."""
        return session_on(self.world, self.home, self.clients)


def session_on(world: World, home: Home, clients: dict[Address, httpx.AsyncClient]) -> tuple[PayerSession, TabStore]:
    store = TabStore(home.tabs)

    async def connect(party: Party) -> MarketCalls:
        return MarketCalls(Calls(clients[party.operator], "http://toy"))

    session = PayerSession(
        domain=DOMAIN,
        follower=world,  # type: ignore[arg-type]
        books=TabBooks(store),
        journal=OrderJournal(store),
        keyring=Keyring(home, "password"),
        connect=connect,
        table=TABLE,
        language=LANGUAGE,
        class_id=CLASS_ID,
    )
    return session, store


@asynccontextmanager
async def toy_stage(
    folder: Path, *, schedulers: int = 1, ends: tuple[int, ...] = (2,), deposit: int = DEPOSIT, **options: Any
) -> AsyncIterator[Stage]:
    """Schedulers on sockets, a tab with each, and a session."""
    world = World(ends)
    home = Home(folder)
    home.create()
    toys = [ToyScheduler(world, 10 * number, **options) for number in range(schedulers)]
    async with AsyncExitStack() as stack:
        clients = {}
        for toy in toys:
            server = await stack.enter_async_context(serving(TlsServer(toy.app(), None, "127.0.0.1", 0)))
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=False)
            clients[toy.key.address] = await stack.enter_async_context(client)
        session, store = session_on(world, home, clients)
        stack.callback(store.close)
        opened = []
        for toy in toys:
            key = session.keyring.create(DEMO_SCRYPT_N)
            tab = Tab(PAYER.address, toy.key.address, key.address)
            session.books.add(tab, chain_id=CHAIN_ID, bank=CONTRACTS.bank, factory=FACTORY)
            opened.append(world.open_tab(tab, deposit))
        yield Stage(world, toys, session, store, home, opened, clients)


__all__ = ["NO_HASH", "Stage", "ToyScheduler", "World", "toy_stage"]
