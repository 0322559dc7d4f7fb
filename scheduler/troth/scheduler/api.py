"""The client's side of a scheduler: HTTPS and JSON (names in snake_case, bytes as 0x-hexadecimal, wei as decimal text).

POST /v1/orders answers with one JSON object per line while the task runs. A client that goes away changes nothing: the
task is finished and settled, and GET /v1/tasks/{id} has its receipt. POST /v1/direct/orders is the same for an order
that entered at a node of its model, which then names the inferencer among the drawn candidates (module `entry_choice`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from troth.overlay.health import health_routes
from troth.protocol.types import Hash32
from troth.scheduler.errors import BadRequest, Busy, OrderRefused, OtherSplit
from troth.scheduler.pool.routes import placement_routes
from troth.scheduler.reading import read_hash
from troth.scheduler.receipts import receipt
from troth.scheduler.service import Scheduler
from troth.scheduler.stream import ClientStream
from troth.scheduler.submission import read_operator, read_submission
from troth.scheduler.task_errors import InsufficientEscrow, UnknownTask

BODY_LIMIT = 2 * 2**20
"""Bytes of an order: the longest prompt in decimal, twice."""
BODY_SECONDS = 30.0
SALT_HEADER = "troth-salt"


def scheduler_app(scheduler: Scheduler) -> FastAPI:
    """The application; it holds no state of its own."""
    app = FastAPI(title="Troth scheduler", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(health_routes(scheduler.reasons, scheduler.metrics.registry))
    app.include_router(placement_routes(scheduler.pools))
    scheduler.pools.server(scheduler.desk.scheduler).mount(app)

    @app.exception_handler(OrderRefused)
    async def refused(_request: Request, error: OrderRefused) -> Response:
        return _refusal(error)

    @app.get("/v1/info")
    async def info() -> JSONResponse:
        return JSONResponse(_info(scheduler))

    @app.get("/v1/models/{class_id}/tokenizer")
    async def tokenizer(class_id: str) -> JSONResponse:
        texts = scheduler.catalogue.served(read_hash(class_id, "class id")).texts
        return JSONResponse(
            {"tokenizer": texts.tokenizer, "chat_template": texts.chat_template, "config": texts.config}
        )

    @app.post("/v1/orders")
    async def orders(request: Request) -> StreamingResponse:
        return await _order(scheduler, request, direct=False)

    @app.post("/v1/direct/orders")
    async def direct_orders(request: Request) -> StreamingResponse:
        return await _order(scheduler, request, direct=True)

    @app.post("/v1/tasks/{task_id}/inferencer", status_code=204)
    async def inferencer(task_id: str, request: Request) -> None:
        salt = read_hash(request.headers.get(SALT_HEADER, ""), "salt")
        scheduler.choose(read_hash(task_id, "task id"), salt, read_operator(await _body(request)))

    @app.get("/v1/tasks/{task_id}")
    async def tasks(task_id: str, request: Request) -> JSONResponse:
        salt = request.headers.get(SALT_HEADER)
        shown = None if salt is None else read_hash(salt, "salt")
        found = receipt(read_hash(task_id, "task id"), scheduler.desk.journal, shown)
        if found is None:
            raise UnknownTask(
                "No such task was taken here", task_id, "Check the id, and ask the order's own scheduler."
            )
        return JSONResponse(found)

    return app


async def _order(scheduler: Scheduler, request: Request, *, direct: bool) -> StreamingResponse:
    lifecycle = await scheduler.submit(read_submission(await _body(request)), direct=direct)
    lines = _lines(scheduler, lifecycle.task.task_id, lifecycle.stream)
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > BODY_LIMIT:
                    raise BadRequest(f"An order has at most {BODY_LIMIT} bytes", len(body), "Shorten the prompt.")
    except TimeoutError as error:
        raise BadRequest(f"The order did not come within {BODY_SECONDS:g} s", len(body), "Send it at once.") from error
    return bytes(body)


async def _lines(scheduler: Scheduler, task_id: Hash32, stream: ClientStream) -> AsyncIterator[bytes]:
    async for line in stream.lines():
        yield msgspec.json.encode(line) + b"\n"
    story = scheduler.desk.journal.history(task_id)
    salt = getattr(story[0], "salt", None) if story else None
    final = receipt(task_id, scheduler.desk.journal, salt)
    yield msgspec.json.encode({"type": "receipt", **(final or {})}) + b"\n"


def _refusal(error: OrderRefused) -> Response:
    fields: dict[str, object] = {"code": error.code, "message": str(error), "remedy": error.remedy}
    if isinstance(error, InsufficientEscrow):
        fields["shortfall"] = str(error.shortfall)
    if isinstance(error, OtherSplit):
        fields["ends"] = list(error.ends)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Busy) else None
    return JSONResponse({"error": fields}, status_code=error.status, headers=headers)


def _info(scheduler: Scheduler) -> dict[str, object]:
    operator, state = scheduler.desk.scheduler, scheduler.desk.ledger.state
    offered = []
    for class_id in scheduler.catalogue.ids():
        terms = scheduler.catalogue.terms(class_id, state)
        offered.append(
            {
                "id": "0x" + class_id.hex(),
                "model": "0x" + terms.execution_class.model.hex(),
                "name": terms.execution_class.name,
                "ends": list(terms.ends),
                "placement": "auto" if terms.served.placing else "fixed",
                "fee": str(terms.fee),
                "context": terms.served.context,
            }
        )
    domain = operator.domain
    return {
        "operator": operator.address,
        "contract": domain.contract,
        "chain_id": domain.chain_id,
        "block": scheduler.desk.ledger.block,
        "classes": offered,
    }
