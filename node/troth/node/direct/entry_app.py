"""What clients find at a node's overlay entry: the interface of each bonded scheduler, with tokens from the node.

POST /schedulers/{address}/v1/orders takes the body of the scheduler's own /v1/orders and answers like it. The GET paths
under it are the scheduler's own. Nothing here knows who asks.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from troth.node.direct.counters import Counters
from troth.node.direct.entering import Entering
from troth.node.direct.hearing import Hearing
from troth.node.direct.held import HeldResponse
from troth.node.direct.order import EnteredOrder, read_order
from troth.node.direct.scheduler_side import SALT_HEADER, Refused, SchedulerSide, bounded, refusal
from troth.node.direct.serving_task import ServingTask
from troth.node.errors import EntryRefused, SchedulerAway
from troth.node.view import ChainView
from troth.protocol.state import Scheduler
from troth.protocol.types import Address, ExecutionClass, Hash32, ModelDescriptor

BODY_LIMIT = 2 * 2**20
"""Bytes of an order, as at a scheduler."""
BODY_SECONDS = 30.0
MOST_ORDERS = 64
"""Orders that are answered at once; each holds a connection to its scheduler."""
MOST_FETCHES = 16
ONE_SCHEDULER = 0.75
"""The part of all places that one scheduler's orders may take: if it hangs, the others' still find some."""
LARGEST_FILES = 64 * 2**20
"""Bytes of a model's tokenizer and its companions."""
FETCH_SECONDS = 120.0
RETRY_AFTER = 5
_HEX32 = re.compile(r"0x[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the application works with; `me` is the node's operator."""

    me: Address
    execution_class: Hash32
    view: ChainView
    schedulers: SchedulerSide
    entering: Entering
    hearing: Hearing
    counters: Counters

    def rules(self) -> tuple[ExecutionClass, ModelDescriptor]:
        """The class that this node serves, and its model."""
        rules = self.view.execution_class(self.execution_class)
        model = None if rules is None else self.view.descriptor(rules.model)
        assert rules is not None and model is not None  # noqa: PT018 - loaded with the engine, and never removed
        return rules, model


class Places:
    """How many requests of a kind are under way, to each scheduler."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Address] = Counter()

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._taken.total()

    @contextmanager
    def one(self, scheduler: Address) -> Iterator[None]:
        """A place; raises EntryRefused where all are taken, or this scheduler's part of them."""
        if self.taken >= self._most or self._taken[scheduler] >= self._most * ONE_SCHEDULER:
            what = f"The {self._most} places of this entry are taken"
            remedy = f"Try again in {RETRY_AFTER} s, or enter at another node."
            raise EntryRefused("busy", 503, what, self.taken, remedy, retry_after=RETRY_AFTER)
        self._taken[scheduler] += 1
        try:
            yield
        finally:
            self._taken[scheduler] -= 1
            if not self._taken[scheduler]:
                del self._taken[scheduler]


def entry_app(entry: Entry) -> FastAPI:
    """The application behind a node's overlay entry."""
    app = FastAPI(title="Troth entry", docs_url=None, redoc_url=None, openapi_url=None)
    orders, fetches = Places(MOST_ORDERS), Places(MOST_FETCHES)

    @app.exception_handler(EntryRefused)
    async def refused(_request: Request, error: EntryRefused) -> Response:
        entry.counters.entered.labels(outcome=error.code).inc()
        headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
        return _error(error.code, str(error), error.remedy, error.status, headers)

    @app.exception_handler(SchedulerAway)
    async def away(_request: Request, error: SchedulerAway) -> Response:
        entry.counters.entered.labels(outcome="scheduler_away").inc()
        return _error("scheduler_away", str(error), error.remedy, 502, None)

    @app.get("/v1/info")
    async def info() -> JSONResponse:
        return JSONResponse(_info(entry))

    @app.post("/schedulers/{scheduler}/v1/orders")
    async def order(scheduler: str, request: Request) -> Response:
        return await _order(entry, orders, entry.schedulers.bonded(scheduler), request)

    @app.get("/schedulers/{scheduler}/v1/info")
    async def scheduler_info(scheduler: str) -> Response:
        return await _fetch(entry, fetches, scheduler, "/v1/info", None)

    @app.get("/schedulers/{scheduler}/v1/models/{class_id}/tokenizer")
    async def tokenizer(scheduler: str, class_id: str) -> Response:
        return await _fetch(entry, fetches, scheduler, f"/v1/models/{_hex(class_id)}/tokenizer", None)

    @app.get("/schedulers/{scheduler}/v1/tasks/{task_id}")
    async def tasks(scheduler: str, task_id: str, request: Request) -> Response:
        salt = request.headers.get(SALT_HEADER)
        path = f"/v1/tasks/{_hex(task_id)}"
        return await _fetch(entry, fetches, scheduler, path, None if salt is None else _hex(salt))

    return app


async def _order(entry: Entry, places: Places, scheduler: Scheduler, request: Request) -> Response:
    async with AsyncExitStack() as stack:
        stack.enter_context(places.one(scheduler.operator))
        entry.counters.under_way.inc()
        stack.callback(entry.counters.under_way.dec)
        body = await _body(request)
        with entry.counters.spent("order"):
            order = read_order(body)
            if order.execution_class != entry.execution_class:
                shown = "0x" + order.execution_class.hex()
                raise EntryRefused("unknown_class", 404, "Another class is served here", shown, "Enter at its nodes.")
        warming = asyncio.create_task(entry.schedulers.warm(scheduler))
        stack.callback(warming.cancel)
        upstream = await stack.enter_async_context(entry.schedulers.order(scheduler, body))
        if isinstance(upstream, Refused):
            entry.counters.entered.labels(outcome="refused").inc()
            return _passed_on(upstream)
        entry.counters.entered.labels(outcome="taken").inc()
        lines = _serving(entry, order, scheduler).lines(upstream)
        return HeldResponse(stack.pop_all(), lines, "application/x-ndjson")


def _serving(entry: Entry, order: EnteredOrder, scheduler: Scheduler) -> ServingTask:
    rules, model = entry.rules()
    return ServingTask(
        order,
        scheduler,
        rules,
        model.vocabulary,
        schedulers=entry.schedulers,
        entering=entry.entering,
        hearing=entry.hearing,
        counters=entry.counters,
        domain=entry.view.domain,
    )


async def _fetch(entry: Entry, places: Places, scheduler: str, path: str, salt: str | None) -> Response:
    async with AsyncExitStack() as stack:
        bonded = entry.schedulers.bonded(scheduler)
        stack.enter_context(places.one(bonded.operator))
        response = await stack.enter_async_context(entry.schedulers.fetch(bonded, path, salt))
        if response.status_code != httpx.codes.OK:
            return _passed_on(await refusal(response))
        pieces = _in_time(bounded(response, LARGEST_FILES))
        return HeldResponse(stack.pop_all(), pieces, "application/json")


async def _in_time(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    until = asyncio.get_running_loop().time() + FETCH_SECONDS
    async for piece in pieces:
        if asyncio.get_running_loop().time() > until:
            raise SchedulerAway("The scheduler's answer takes too long", FETCH_SECONDS, "Try again.")
        yield piece


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_LIMIT:
                    what = f"An order has at most {BODY_LIMIT} bytes"
                    raise EntryRefused("bad_request", 413, what, len(body), "Shorten the prompt.")
    except TimeoutError as error:
        what = f"The order did not come within {BODY_SECONDS:g} s"
        raise EntryRefused("bad_request", 408, what, len(body), "Send it at once.") from error
    return bytes(body)


def _hex(text: str) -> str:
    if not _HEX32.fullmatch(text):
        raise EntryRefused("bad_request", 400, "This is no id of 32 bytes", text[:80], "Send 0x and 64 digits.")
    return text


def _passed_on(refused: Refused) -> Response:
    headers = None if refused.retry_after is None else {"retry-after": refused.retry_after}
    return Response(refused.body, refused.status, headers, "application/json")


def _error(code: str, message: str, remedy: str, status: int, headers: dict[str, str] | None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "remedy": remedy}}, status, headers)


def _info(entry: Entry) -> dict[str, object]:
    rules, _ = entry.rules()
    domain = entry.view.domain
    return {
        "operator": entry.me,
        "contract": domain.contract,
        "chain_id": domain.chain_id,
        "block": entry.view.head,
        "class": "0x" + entry.execution_class.hex(),
        "model": "0x" + rules.model.hex(),
        "name": rules.name,
    }
