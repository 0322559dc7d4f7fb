"""Schedulers in a market in memory that really sign: keys, VRF, drawn nodes and verifiers, a toy model, real HTTP.

A scheduler serves over a socket of its own and does everything right until a test changes what it says: ``tamper``
gets the lines of an order or of its check, and gives back others. Among lines, an event is awaited, None stalls for
ever, bytes are sent as they are, and an exception ends the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from support.byte_language import language_files, tokens_of
from support.toy_market import CHAIN_ID, CLASS, CLASS_ID, COLUMNS, DOMAIN, NODE_KEYS, RULES, World
from support.toy_tab_lines import line_of, refused, sealed, stream

from troth.chain.keystore import Key
from troth.protocol import typed_data, vrf
from troth.protocol.errors import ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.market import bodies, canonical, checks, life, lottery, messages, prices, tabs
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
from troth.protocol.market.last_row import LastRow
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Admission, Draw, Opinion, Result, Row, TraceCommitment, Verdict
from troth.protocol.market.views import view_of
from troth.protocol.request import Request as Ordered
from troth.protocol.request import from_canonical_bytes, output_hash, request_hash
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import (
    ZERO_HASH,
    Address,
    Hash32,
    address_to_bytes,
)

HEAD_SALT = Hash32(b"\x4d" * 32)


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
    """``answer`` is what its model says to everything; a prompt that ends with a part of it is continued.

    ``writes``: how many tokens of it, where it ends early; ``ended``: it was told to.
    """

    def __init__(self, world: World, number: int = 0, answer: str = "hello world") -> None:
        self.world = world
        self.key = Key.from_secret(bytes([3 + number]) * 32)
        self.vrf = bytes([4 + number]) * 32
        self.answer = tokens_of(answer)
        self.books: dict[Hash32, tabs.PayeeBook] = {}
        self.vouchers: dict[Hash32, Signed[Any]] = {}
        self.orders: dict[Hash32, ToyOrder] = {}
        self.forgotten: dict[Hash32, list[Any]] = {}
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
        self.writes: int | None = None
        self.ended = asyncio.Event()
        world.register(self.key.address, self.vrf)

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
        return self.answer[done:][: request.max_tokens][: self.writes]

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
            identifier = Hash32(bytes.fromhex(name[2:]))
            if identifier in self.forgotten:
                left = self.forgotten[identifier]
                gone = {"error": {"code": "too_late", "message": "kept no longer"}}
                return stream(left) if left else JSONResponse(gone, 409)
            placed = self.orders.get(identifier)
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

        @app.post("/v1/orders/{name}/end")
        async def end(name: str, request: Request) -> Any:
            self.calls_of.append("end")
            placed = self.orders[Hash32(bytes.fromhex(name[2:]))]
            assert request.headers["troth-salt"] == "0x" + placed.submission.salt.hex()
            self.ended.set()
            return {"ending": True}

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
