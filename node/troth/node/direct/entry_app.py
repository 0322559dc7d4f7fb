"""What clients find at a node's overlay entry: the interface of each bonded scheduler, with tokens from the node.

POST /schedulers/{address}/v1/orders takes the body of the scheduler's own /v1/orders and answers with the same lines.
Secrets of a check go through in the same way. Nothing here knows who asks, and nothing is kept.

A streamed answer holds its place, its connection and its listeners until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from troth.node.direct.checking import ServingCheck
from troth.node.direct.order import read_order
from troth.node.direct.scheduler_side import SALT_HEADER, RelayedRefusal, SchedulerSide, bounded, refusal
from troth.node.direct.serving import LONGEST_SECONDS, ServingContext, ServingOrder
from troth.node.errors import IntakeRefused, SchedulerAway
from troth.protocol.market.bodies import BODY_LIMIT, SUBMISSION_LIMIT
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32

BODY_SECONDS = 30.0
MOST_ORDERS = 64
"""Orders that are answered at once; each holds a connection to its scheduler."""
MOST_CHECKS = 64
MOST_FETCHES = 16
ONE_SCHEDULER = 0.75
"""The part of all places that one scheduler's orders may take: if it hangs, the others' still find some."""
LARGEST_FILES = 64 * 2**20
"""Bytes of a model's tokenizer and its companions, or of all openings of a check."""
FETCH_SECONDS = 120.0
RETRY_AFTER = 5
_HEX32 = re.compile(r"0x[0-9a-fA-F]{64}")
NDJSON = "application/x-ndjson"


class HeldResponse(StreamingResponse):
    """Gives everything back with its last piece, and also where the client is gone before the first.

    Args:
        held: what is given back.
        pieces: the body; closed before what it needs is given back.
    """

    def __init__(self, held: AsyncExitStack, pieces: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._held = held
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI 3.0."""
        async with self._held, aclosing(self._pieces):
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True)
class EntryContext:
    """What the application works with; `me` is the node's operator, `block` the newest that it followed.

    `reasons` say why the node is not ready.
    """

    me: Address
    execution_class: Hash32
    domain: Domain
    block: Callable[[], int]
    schedulers: SchedulerSide
    tools: ServingContext
    reasons: Callable[[], list[str]]


class Places:
    """So many requests at once, of one scheduler no more than its part."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Address] = Counter()

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._taken.total()

    @contextmanager
    def one(self, scheduler: Address) -> Iterator[None]:
        """A place; raises IntakeRefused where all are taken, or this scheduler's part of them."""
        if self.taken >= self._most or self._taken[scheduler] >= self._most * ONE_SCHEDULER:
            what = f"The {self._most} places of this entry are taken"
            remedy = f"Try again in {RETRY_AFTER} s, or enter at another node."
            raise IntakeRefused("busy", 503, what, self.taken, remedy, retry_after=RETRY_AFTER)
        self._taken[scheduler] += 1
        try:
            yield
        finally:
            self._taken[scheduler] -= 1
            if not self._taken[scheduler]:
                del self._taken[scheduler]


def entry_app(entry: EntryContext) -> FastAPI:
    """The application behind a node's overlay entry."""
    app = FastAPI(title="Troth entry", docs_url=None, redoc_url=None, openapi_url=None)
    orders, checks, fetches = Places(MOST_ORDERS), Places(MOST_CHECKS), Places(MOST_FETCHES)
    counters = entry.tools.counters

    @app.exception_handler(IntakeRefused)
    async def refused(_request: Request, error: IntakeRefused) -> Response:
        counters.entered.labels(outcome=error.code).inc()
        headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
        return _error(error.code, str(error), error.remedy, error.status, headers)

    @app.exception_handler(SchedulerAway)
    async def away(_request: Request, error: SchedulerAway) -> Response:
        counters.entered.labels(outcome="scheduler_away").inc()
        return _error("scheduler_away", str(error), error.remedy, 502, None)

    @app.get("/v1/info")
    async def info() -> JSONResponse:
        return JSONResponse(_info(entry))

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        found = entry.reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    @app.post("/schedulers/{scheduler}/v1/orders")
    async def order(scheduler: str, request: Request) -> Response:
        return await _order(entry, orders, scheduler, request)

    @app.get("/schedulers/{scheduler}/v1/orders/{order_id}")
    async def again(scheduler: str, order_id: str, request: Request) -> Response:
        return await _again(entry, orders, scheduler, _hex(order_id), _hex(request.headers.get(SALT_HEADER, "")))

    @app.post("/schedulers/{scheduler}/v1/orders/{order_id}/secret")
    async def secret(scheduler: str, order_id: str, request: Request) -> Response:
        return await _check(entry, checks, scheduler, _hex(order_id), request)

    @app.post("/schedulers/{scheduler}/v1/orders/{order_id}/tiles")
    async def tiles(scheduler: str, order_id: str, request: Request) -> Response:
        body = await _body(request, BODY_LIMIT)
        return await _fetch(entry, checks, scheduler, f"/v1/orders/{_hex(order_id)}/tiles", body)

    @app.get("/schedulers/{scheduler}/v1/info")
    async def scheduler_info(scheduler: str) -> Response:
        return await _fetch(entry, fetches, scheduler, "/v1/info")

    @app.get("/schedulers/{scheduler}/v1/prices")
    async def prices(scheduler: str) -> Response:
        return await _fetch(entry, fetches, scheduler, "/v1/prices")

    @app.get("/schedulers/{scheduler}/v1/models/{class_id}/tokenizer")
    async def tokenizer(scheduler: str, class_id: str) -> Response:
        return await _fetch(entry, fetches, scheduler, f"/v1/models/{_hex(class_id)}/tokenizer")

    return app


async def _order(entry: EntryContext, places: Places, name: str, request: Request) -> Response:
    scheduler, counters = entry.schedulers.bonded(name), entry.tools.counters
    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(scheduler.operator))
        counters.under_way.inc()
        stack.callback(counters.under_way.dec)
        body = await _body(request, SUBMISSION_LIMIT)
        with counters.spent("order"):
            # A prompt has a million hexadecimal digits at most, which take a while to read.
            order = await asyncio.to_thread(read_order, body, entry.domain)
            if order.execution_class != entry.execution_class:
                shown = "0x" + order.execution_class.hex()
                raise IntakeRefused("unknown_class", 404, "Another class is served here", shown, "Enter at its nodes.")
        ranked = entry.tools.dealing.ranked(order, scheduler.operator)
        upstream = await stack.enter_async_context(entry.schedulers.order(scheduler, body, ranked.nodes))
        if isinstance(upstream, RelayedRefusal):
            counters.entered.labels(outcome="refused").inc()
            return _passed_on(upstream)
        counters.entered.labels(outcome="taken").inc()
        lines = ServingOrder(order, scheduler.operator, ranked, entry.tools).lines(upstream)
        return HeldResponse(stack.pop_all(), lines, NDJSON)


async def _again(entry: EntryContext, places: Places, name: str, order_id: str, salt: str) -> Response:
    scheduler = entry.schedulers.bonded(name)
    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(scheduler.operator))
        path = f"/v1/orders/{order_id}"
        upstream = await stack.enter_async_context(entry.schedulers.again(scheduler, path, salt))
        if isinstance(upstream, RelayedRefusal):
            return _passed_on(upstream)
        return HeldResponse(stack.pop_all(), _ended(upstream), NDJSON)


async def _check(entry: EntryContext, places: Places, name: str, order_id: str, request: Request) -> Response:
    scheduler = entry.schedulers.bonded(name)
    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(scheduler.operator))
        body = await _body(request, BODY_LIMIT)
        path = f"/v1/orders/{order_id}/secret"
        upstream = await stack.enter_async_context(entry.schedulers.check(scheduler, path, body))
        if isinstance(upstream, RelayedRefusal):
            return _passed_on(upstream)
        entry.tools.counters.checks.inc()
        lines = ServingCheck(Hash32(bytes.fromhex(order_id[2:])), entry.tools.hearing).lines(upstream)
        return HeldResponse(stack.pop_all(), lines, NDJSON)


async def _fetch(entry: EntryContext, places: Places, name: str, path: str, body: bytes = b"") -> Response:
    scheduler = entry.schedulers.bonded(name)
    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(scheduler.operator))
        response = await stack.enter_async_context(entry.schedulers.fetch(scheduler, path, body))
        if response.status_code != httpx.codes.OK:
            return _passed_on(await refusal(response))
        pieces = _in_time(bounded(response, LARGEST_FILES))
        return HeldResponse(stack.pop_all(), pieces, "application/json")


async def _ended(lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Each with its end. A stream that lasts too long ends early, and its client goes to the scheduler."""
    until = asyncio.get_running_loop().time() + LONGEST_SECONDS
    with contextlib.suppress(StopAsyncIteration, TimeoutError):
        while True:
            async with asyncio.timeout_at(until):
                line = await anext(lines)
            yield line + b"\n"


async def _in_time(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    until = asyncio.get_running_loop().time() + FETCH_SECONDS
    async for piece in pieces:
        if asyncio.get_running_loop().time() > until:
            raise SchedulerAway("The scheduler's answer takes too long", FETCH_SECONDS, "Try again.")
        yield piece


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    what = f"This body has at most {limit} bytes"
                    raise IntakeRefused("bad_request", 413, what, len(body), "Send less.")
    except TimeoutError as error:
        what = f"The body did not come within {BODY_SECONDS:g} s"
        raise IntakeRefused("bad_request", 408, what, len(body), "Send it at once.") from error
    return bytes(body)


def _hex(text: str) -> str:
    if not _HEX32.fullmatch(text):
        raise IntakeRefused("bad_request", 400, "This is no id of 32 bytes", text[:80], "Send 0x and 64 digits.")
    return text


def _passed_on(refused: RelayedRefusal) -> Response:
    headers = None if refused.retry_after is None else {"retry-after": refused.retry_after}
    return Response(refused.body, refused.status, headers, "application/json")


def _error(code: str, message: str, remedy: str, status: int, headers: dict[str, str] | None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "remedy": remedy}}, status, headers)


def _info(entry: EntryContext) -> dict[str, object]:
    return {
        "operator": entry.me,
        "bank": entry.domain.contract,
        "chain_id": entry.domain.chain_id,
        "block": entry.block(),
        "class": "0x" + entry.execution_class.hex(),
    }
