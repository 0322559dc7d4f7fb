"""Nodes at which a client may enter, each following a script of its own: one real socket, no chain, no overlay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from support.client_stage import (
    CLASS,
    CLIENT,
    DOMAIN,
    LANGUAGE,
    META,
    MODEL,
    RULES,
    SCHEDULER,
    VRF_SECRET,
    FakeFollower,
    base_state,
    honest_lines,
    language_files,
    record,
    tokens_of,
)

from troth.chain.keystore import Key
from troth.client.api import SchedulerApi
from troth.client.choices import Choices
from troth.client.direct.calls import DirectCalls
from troth.client.direct.nodes import NodeChoice
from troth.client.direct.ways import Way, Ways
from troth.client.gateway.serving import Running, Settings
from troth.client.gateway.task_serving import assembled
from troth.client.home import Home
from troth.client.market import Offer
from troth.client.ordering import SignedOrder, sign_order
from troth.client.receipts import Receipts
from troth.client.session import Session
from troth.overlay.server import TlsServer, serving
from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.contract_types import Account, Role
from troth.protocol.identifiers import group_id
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.state import Group, Node, Occupancy, State
from troth.protocol.typed_data import sign
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, Served

WHOLE = Segment(0, MODEL.layers)
ENDS = (MODEL.layers,)
OFFER = Offer(SCHEDULER, RULES, MODEL, ENDS)
KEYS = {key.address: key for key in (Key.from_secret(bytes([0x21 + number]) * 32) for number in range(6))}
NODES = tuple(KEYS)
STRANGER = Key.from_secret(b"\x41" * 32)
TOKENS = tokens_of("Hello!")
PREFIX = f"/schedulers/{SCHEDULER.operator}"

Lines = list[Any]
Script = Callable[[SignedOrder], Lines]


def whole_state(escrow: int = 10**18) -> State:
    """A chain on which six bonded nodes host the whole model, in one group."""
    state = base_state(escrow)
    for node in NODES:
        registered = Node(node, node, node, CLASS, WHOLE, "https://127.0.0.1:1", ZERO_HASH, META)
        account = Account(RULES.minimum_stake, role=Role.NODE)
        state = replace(
            state, nodes=state.nodes.with_item(node, registered), accounts=state.accounts.with_item(node, account)
        )
    group = Group(CLASS, WHOLE, tuple((Occupancy(node, 0),) for node in NODES))
    return replace(state, groups=state.groups.with_item(group_id(CLASS, WHOLE), group))


def direct_order(question: str = "hello") -> SignedOrder:
    prompt = LANGUAGE.prompt_tokens([{"role": "user", "content": question}])
    return sign_order(OFFER, prompt, LANGUAGE.end_tokens, Choices(64), CLIENT, DOMAIN, 77)


def drawn(signed: SignedOrder) -> tuple[bytes, tuple[Address, ...]]:
    """Proof and parties of the one segment."""
    block = signed.order.reference_block
    alpha = assignment_alpha(DOMAIN, signed.task_id, 0, group_size=len(NODES), reference_block=block)
    proof = vrf.prove(VRF_SECRET, alpha)
    return proof, tuple(draw(Hash32(vrf.proof_to_hash(proof)), NODES, RULES.parties))


def candidates(signed: SignedOrder) -> tuple[Address, ...]:
    return drawn(signed)[1][: RULES.candidates]


def verifiers(signed: SignedOrder) -> tuple[Address, ...]:
    return drawn(signed)[1][RULES.candidates :]


def served_line(signed: SignedOrder, tokens: list[int], node: Address, by: Key | None = None) -> dict[str, Any]:
    """The word of a node on its answer; `by`: signed by another key than its own."""
    word = Served(signed.task_id, output_hash(signed.salt, tokens))
    signature = sign(word, DOMAIN, (by or KEYS[node]).secret)
    return {"type": "served", "node": node, "signature": "0x" + signature.hex()}


def direct_lines(signed: SignedOrder, tokens: list[int] | None = None, served: Any = "first") -> Lines:
    """An honest stream; `served` is the line before the end, None for none, by default the first candidate's."""
    tokens = TOKENS if tokens is None else tokens
    lines: Lines = honest_lines(signed, tokens)
    proof, parties = drawn(signed)
    assigned = {"ends": list(ENDS), "proofs": ["0x" + proof.hex()], "parties": [list(parties)]}
    lines[0] = lines[0] | assigned
    line = served_line(signed, tokens, candidates(signed)[0]) if served == "first" else served
    place = next(number for number, one in enumerate(lines) if one["type"] == "finished")
    return lines[:place] + ([] if line is None else [line]) + lines[place:]


@dataclass
class Entries:
    """All nodes' entries behind one socket, each at a path of its own.

    A line that is None stalls for ever, an event is awaited, Ellipsis breaks the stream off.
    """

    follower: FakeFollower = field(default_factory=lambda: FakeFollower(whole_state()))
    script: Script = direct_lines
    scripts: dict[Address, Script] = field(default_factory=dict)
    ends: tuple[int, ...] = ENDS
    answer: list[int] = field(default_factory=lambda: list(TOKENS))
    outcome: Outcome | None = Outcome.ACCEPTED
    dead: set[Address] = field(default_factory=set)
    silent: set[Address] = field(default_factory=set)
    refusing: dict[Address, tuple[int, str]] = field(default_factory=dict)
    listed: set[Address] = field(default_factory=lambda: set(NODES))
    signed: dict[str, SignedOrder] = field(default_factory=dict)
    entered: list[Address] = field(default_factory=list)
    knocked: list[Address] = field(default_factory=list)
    shown: list[tuple[Address, str]] = field(default_factory=list)
    """Node and salt of each receipt that was asked for."""
    opened: list[Address] = field(default_factory=list)
    closed: list[Address] = field(default_factory=list)
    base: str = ""

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/{node}" + PREFIX + "/v1/info")
        async def info(node: str) -> Any:
            self.knocked.append(Address(node))
            if node in self.silent:
                await asyncio.Event().wait()
            return {"classes": [{"id": "0x" + CLASS.hex(), "ends": list(self.ends)}]}

        @app.get("/{node}" + PREFIX + "/v1/models/{identifier}/tokenizer")
        async def tokenizer(node: str, identifier: str) -> Any:
            files = language_files()
            return {"tokenizer": files.tokenizer, "chat_template": files.chat_template, "config": files.config}

        @app.get("/{node}" + PREFIX + "/v1/tasks/{identifier}")
        async def task(node: str, identifier: str, request: Request) -> Any:
            self.shown.append((Address(node), request.headers["troth-salt"]))
            return {"tokens": self.answer}

        @app.post("/{node}" + PREFIX + "/v1/orders")
        async def orders(node: str, request: Request) -> Response:
            self.entered.append(Address(node))
            signed = self.signed[(await request.json())["signature"]]
            if Address(node) in self.refusing:
                status, code = self.refusing[Address(node)]
                return JSONResponse({"error": {"code": code, "message": "No", "remedy": "Wait."}}, status)
            self.follower.put(signed, record(signed, self.answer, self.outcome, ends=ENDS))
            lines = self.scripts.get(Address(node), self.script)(signed)
            return StreamingResponse(_sent(lines), media_type="application/x-ndjson")

        return app

    def opening(self, node: Address) -> Way:
        """The way to a node, over plain HTTP."""
        self.opened.append(node)
        base = "http://127.0.0.1:1" if node in self.dead else self.base
        client = httpx.AsyncClient(base_url=f"{base}/{node}{PREFIX}", timeout=60, trust_env=False)

        async def close() -> None:
            self.closed.append(node)
            await client.aclose()

        return Way(SchedulerApi(client, f"node {node}"), close)

    def calls(self, ways: Ways) -> DirectCalls:
        return DirectCalls(NodeChoice(lambda _: self.listed), ways, CLASS)

    @asynccontextmanager
    async def session(self, home: Home, most: int = 8) -> AsyncIterator[Session]:
        """A client's session in direct mode."""
        receipts, ways = Receipts(home.receipts, DOMAIN), Ways(self.opening, most)
        signed = self.signed

        class Chain:
            domain = DOMAIN

        class Remembering(Session):
            async def prepare_tokens(self, prompt: tuple[int, ...], choices: Choices, key: Key) -> SignedOrder:
                order = await Session.prepare_tokens(self, prompt, choices, key)
                signed["0x" + order.signature.hex()] = order
                return order

        try:
            yield Remembering(
                Chain(),  # type: ignore[arg-type]
                self.follower,  # type: ignore[arg-type]
                self.calls(ways),
                OFFER,
                LANGUAGE,
                receipts,
                None,
                "direct",
            )
        finally:
            await ways.close()
            receipts.close()


async def _sent(lines: Lines) -> AsyncIterator[bytes]:
    for line in lines:
        if line is None:
            await asyncio.Event().wait()
        if line is ...:
            yield b'{"type": "tok'
            return
        if isinstance(line, asyncio.Event):
            await line.wait()
            continue
        yield json.dumps(line).encode() + b"\n"


@asynccontextmanager
async def entries() -> AsyncIterator[Entries]:
    """Six honest nodes, until a test makes them something else."""
    stage = Entries()
    async with serving(TlsServer(stage.app(), None, "127.0.0.1", 0, drain_seconds=0.1)) as server:
        stage.base = f"http://127.0.0.1:{server.port}"
        yield stage


@dataclass
class DirectGateway:
    """A gateway in direct mode before those nodes."""

    nodes: Entries
    running: Running
    home: Home
    sessions: int = 0

    @property
    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.running.access.key}"}
        return httpx.AsyncClient(base_url=self.running.gateway.base, headers=headers, timeout=120, trust_env=False)

    async def chat(self, messages: list[dict[str, str]], **fields: Any) -> httpx.Response:
        async with self.client as client:
            body = {"model": "toy", "messages": messages, "max_tokens": 64} | fields
            return await client.post("/v1/chat/completions", json=body)

    async def get(self, path: str) -> httpx.Response:
        async with self.client as client:
            return await client.get(path)


@asynccontextmanager
async def direct_gateway(folder: Path, **settings: Any) -> AsyncIterator[DirectGateway]:
    async with entries() as nodes:
        home = Home(folder)

        @asynccontextmanager
        async def factory() -> AsyncIterator[Session]:
            stage.sessions += 1
            async with nodes.session(home) as session:
                yield session

        stage = DirectGateway(nodes, None, home)  # type: ignore[arg-type]
        plain = replace(Settings(port=0, keep_alive=0.1), **settings)
        async with assembled(home, CLIENT, factory, plain) as running:
            stage.running = running
            async with serving(running.server) as server:
                running.listens(server.port)
                yield stage
