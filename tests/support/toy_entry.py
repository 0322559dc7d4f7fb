"""A node at which orders enter, before toy schedulers: honest until a test changes what it passes on.

``tamper`` gets an order's lines with the node's signatures among them, and gives back others; ``tamper_check`` those of
its check. What may stand among lines is said in ``toy_tab_scheduler``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from support.toy_market import DOMAIN, NODE_KEYS
from support.toy_tab_lines import stream
from support.toy_tab_scheduler import ToyOrder, ToyScheduler
from support.toy_tab_stage import Stage

from troth.client.direct.entrance import Entrance
from troth.client.direct.nodes import NodeChoice
from troth.client.direct.ways import SchedulerWay, SchedulerWays
from troth.client.https_calls import Calls
from troth.client.orders.calls import MarketCalls
from troth.protocol.errors import ProtocolError
from troth.protocol.market import bodies, canonical
from troth.protocol.market.bodies import Said, ShownSecret, Submission
from troth.protocol.market.messages import sign
from troth.protocol.request import output_hash
from troth.protocol.types import Address, Hash32
from troth.transport.server import TlsServer, serving

ENTRY = next(iter(NODE_KEYS))
Tamper = Callable[[ToyOrder, list[Any]], list[Any]]


def untouched(_order: ToyOrder, lines: list[Any]) -> list[Any]:
    return lines


def said(one: ToyOrder, tokens: list[int], key: bytes | None = None) -> dict[str, Any]:
    """The serving node's signature over tokens."""
    message = Said(one.identifier, output_hash(one.submission.salt, tokens))
    signed = sign(message, DOMAIN, key or NODE_KEYS[one.nodes[-1]])
    return {"type": "said", "written": len(tokens), "signature": "0x" + signed.signature.hex()}


def with_words(one: ToyOrder, lines: list[Any]) -> list[Any]:
    """A scheduler's lines as an entry passes them on: each token under the node's signature."""
    found: list[Any] = []
    for line in lines:
        found.append(line)
        if isinstance(line, dict) and line["type"] == "token":
            found.append(said(one, one.tokens[: line["position"] + 1]))
    return found


@dataclass
class ToyEntry:
    """One node; ``order`` False: it refuses all, and passes nothing on."""

    schedulers: dict[str, ToyScheduler]
    tamper: Tamper = untouched
    tamper_check: Tamper = untouched
    takes: bool = True
    openings: bool = True
    seen: list[str] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/schedulers/{scheduler}/v1/orders")
        async def order(scheduler: str, request: Request) -> Any:
            self.seen.append("order")
            if not self.takes:
                return JSONResponse({"error": {"code": "busy", "message": "no place", "remedy": ""}}, 503)
            toy = self.schedulers[scheduler]
            submission = canonical.decode(Submission, await request.body(), bodies.SUBMISSION_LIMIT)
            try:
                one = toy.take(submission)
            except ProtocolError as error:
                return JSONResponse({"error": {"code": "invalid_order", "message": error.what, "remedy": ""}}, 400)
            return stream(self.tamper(one, with_words(one, one.lines)))

        @app.post("/schedulers/{scheduler}/v1/orders/{name}/secret")
        async def secret(scheduler: str, name: str, request: Request) -> Any:
            self.seen.append("secret")
            toy = self.schedulers[scheduler]
            one = toy.orders[Hash32(bytes.fromhex(name[2:]))]
            shown = canonical.decode(ShownSecret, await request.body(), bodies.BODY_LIMIT)
            return stream(self.tamper_check(one, list(toy.show(one, shown.secret))))

        @app.post("/schedulers/{scheduler}/v1/orders/{name}/tiles")
        async def tiles(scheduler: str, name: str, request: Request) -> Any:
            self.seen.append("tiles")
            toy = self.schedulers[scheduler]
            one = toy.orders[Hash32(bytes.fromhex(name[2:]))]
            shown = canonical.decode(ShownSecret, await request.body(), bodies.BODY_LIMIT)
            segments = toy.tiles(one, shown.secret)
            return {"segments": segments if self.openings else [{"node": "0x", "opened": {}} for _ in segments]}

        return app


def choice_of(nodes: Collection[Address]) -> NodeChoice:
    return NodeChoice(lambda _wanted: nodes)


@asynccontextmanager
async def toy_entry(stage: Stage, *, nodes: Collection[Address] = (ENTRY,)) -> AsyncIterator[ToyEntry]:
    """An entry on a socket, at which the stage's session enters from now on."""
    entry = ToyEntry({toy.key.address: toy for toy in stage.schedulers})
    async with serving(TlsServer(entry.app(), None, "127.0.0.1", 0, grace_seconds=0.1)) as server:

        def opening(scheduler: Address, _node: Address) -> SchedulerWay:
            base = f"http://127.0.0.1:{server.port}/schedulers/{scheduler}"
            client = httpx.AsyncClient(base_url=base, trust_env=False, verify=False)
            return SchedulerWay(MarketCalls(Calls(client, "entry")), client.aclose)

        ways = SchedulerWays(opening)
        stage.session.entrance = Entrance(choice_of(nodes), ways)
        stage.session.mode = "direct"
        try:
            yield entry
        finally:
            await ways.close()
