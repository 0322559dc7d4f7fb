"""The gateway's HTTP interface: OpenAI's chat, completions, responses, embeddings, models; Anthropic's; receipts."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from troth.chain.errors import ChainError
from troth.client.errors import ClientError
from troth.client.gateway.body import BODY_SECONDS, read_body
from troth.client.gateway.chat_request import read_chat
from troth.client.gateway.completion import Completion
from troth.client.gateway.completion_request import read_completion
from troth.client.gateway.delivery import streamed, whole
from troth.client.gateway.embeddings import read_embedding
from troth.client.gateway.errors import (
    FailureCost,
    GatewayRefusal,
    HopFailed,
    NotFound,
    NotReady,
)
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.line import WaitingLine
from troth.client.gateway.message_request import read_counted, read_message
from troth.client.gateway.metrics import GatewayMetrics
from troth.client.gateway.refusals import answer_of, nothing_here, unknown_error
from troth.client.gateway.request import Defaults, GatewayRequest
from troth.client.gateway.response_request import StoredResponses, read_response
from troth.client.gateway.shapes import ReplyShapes
from troth.transport.health import health_routes

KEEP_ALIVE_SECONDS = 5.0
READER_SECONDS = 1.0
"""How often it is checked whether the reader of an answer that is no stream is still there."""

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Front(ABC):
    """What every gateway's routes work with. `base` is its own address, known once it listens."""

    metrics: GatewayMetrics
    defaults: Defaults
    ledger: CompletionLedger
    base: str = ""
    keep_alive: float = KEEP_ALIVE_SECONDS
    body_seconds: float = BODY_SECONDS
    created: int = field(default_factory=lambda: int(time.time()))
    stopping: bool = False
    delivered: list[Completion] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    stored: StoredResponses = field(default_factory=StoredResponses)
    line: WaitingLine = field(default_factory=WaitingLine)

    def reasons(self) -> list[str]:
        """Why it is not ready."""
        return ["the gateway is stopping"] if self.stopping else self.away()

    @abstractmethod
    def away(self) -> list[str]:
        """What it cannot reach."""

    @abstractmethod
    async def start(self, wanted: GatewayRequest) -> Completion:
        """Order what is wanted."""

    @abstractmethod
    async def count(self, wanted: GatewayRequest) -> int:
        """Tokens of the prompt of what is wanted, which is not ordered."""

    def shapes(self, completion: Completion) -> ReplyShapes:
        """The JSON objects of a completion."""
        return ReplyShapes(completion, self.base)

    @abstractmethod
    async def models(self) -> list[dict[str, Any]]:
        """What may be asked, as /v1/models shows it."""

    @abstractmethod
    async def model(self, name: str) -> dict[str, Any]:
        """One of them; NotFound."""

    @abstractmethod
    def refusal(self, error: ClientError | ChainError) -> GatewayRefusal:
        """What is told of an error that no order was sent for."""

    @abstractmethod
    async def paths(self) -> dict[str, Any]:
        """The circuits that requests go over."""

    @abstractmethod
    async def receipt(self, identifier: str) -> dict[str, Any]:
        """A completion's receipt; NotFound."""

    async def drain(self) -> None:
        """Take no more requests and wait until every answer under way has been handed over.

        Where that is not waited for, each of them ends in an error: the connection alone would end without a word.
        """
        self.stopping = True
        try:
            if self.delivered:
                await self.idle.wait()
        except asyncio.CancelledError:
            for completion in self.delivered:
                completion.cut(_stopped(completion))
            raise

    def begin_delivery(self, completion: Completion) -> None:
        """An answer is being handed over."""
        self.delivered.append(completion)
        self.idle.clear()

    def end_delivery(self, completion: Completion) -> None:
        """It is over."""
        self.delivered.remove(completion)
        if not self.delivered:
            self.idle.set()


def _stopped(completion: Completion) -> HopFailed:
    remedy = (
        "The order goes on, and is owed: once the gateway was started again, "
        f"GET /v1/receipts/{completion.identifier} has its answer."
    )
    return HopFailed(
        "The gateway was stopped before the answer was whole",
        "",
        remedy,
        FailureCost("unknown", completion.tasks),
        hop="gateway",
        status=503,
        code="gateway_stopped",
    )


def no_such_model(name: str) -> NotFound:
    """There is no model of this name."""
    remedy = "GET /v1/models lists what there is."
    return NotFound("The model does not exist here", name[:80], remedy, code="model_not_found", param="model")


def gateway_app(gateway: Front) -> FastAPI:
    """The application; `Guard` goes around it."""
    app = FastAPI(title="Troth gateway", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(health_routes(gateway.reasons, gateway.metrics.registry))
    _add_refusals(app, gateway)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answer(gateway, request, read_chat)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answer(gateway, request, read_completion)

    @app.post("/v1/messages")
    async def messages(request: Request) -> Response:
        return await _answer(gateway, request, read_message)

    @app.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> JSONResponse:
        wanted = read_counted(await read_body(request, gateway.body_seconds), gateway.defaults)
        return JSONResponse({"input_tokens": await gateway.count(wanted)})

    _add_responses(app, gateway)

    @app.post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        return await _answer(gateway, request, read_embedding)

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": await gateway.models()})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> JSONResponse:
        # A model's whole name has slashes, which clients send as they are or as %2F.
        return JSONResponse(await gateway.model(name)) if name else await models()

    @app.get("/v1/paths")
    async def paths() -> JSONResponse:
        return JSONResponse(await gateway.paths())

    @app.get("/v1/receipts/{identifier}")
    async def receipts(identifier: str) -> JSONResponse:
        return JSONResponse(await gateway.receipt(identifier))

    return app


def _add_responses(app: FastAPI, gateway: Front) -> None:
    @app.post("/v1/responses")
    async def responses(request: Request) -> Response:
        return await _answer(gateway, request, partial(read_response, stored=gateway.stored))

    @app.get("/v1/responses/{identifier}")
    async def kept(identifier: str) -> JSONResponse:
        return JSONResponse(gateway.stored.response(identifier))

    @app.delete("/v1/responses/{identifier}")
    async def dropped(identifier: str) -> JSONResponse:
        gateway.stored.response(identifier)
        gateway.stored.drop(identifier)
        return JSONResponse({"id": identifier, "object": "response", "deleted": True})


async def _answer(gateway: Front, request: Request, read: Callable[[object, Defaults], GatewayRequest]) -> Response:
    path = request.url.path
    try:
        # Read before it waits in line: what is wrong with it is said at once, and the line holds no bodies.
        wanted = read(await read_body(request, gateway.body_seconds), gateway.defaults)
        completion = await gateway.line.started(
            partial(_started, gateway, wanted), request.is_disconnected, lambda: gateway.stopping
        )
        answer = Response(status_code=499) if completion is None else await _delivery(gateway, request, completion)
    except GatewayRefusal as refusal:
        gateway.metrics.answers.labels(path, refusal.http_status).inc()
        raise
    gateway.metrics.answers.labels(path, answer.status_code).inc()
    return answer


async def _started(gateway: Front, wanted: GatewayRequest) -> Completion:
    if gateway.stopping:
        raise NotReady("The gateway is stopping", "", "Try again once it has been started again.", "gateway")
    return await gateway.start(wanted)


async def _delivery(gateway: Front, request: Request, completion: Completion) -> Response:
    shapes = gateway.shapes(completion)
    gateway.begin_delivery(completion)
    handed_on = False
    try:
        # A refusal by the scheduler comes at once, and then its HTTP status can still be told.
        await completion.begin(gateway.keep_alive)
        headers = {"x-troth-task": ",".join(completion.tasks), "cache-control": "no-cache"}
        if completion.wanted.stream:
            handed_on = True
            return _Events(gateway, completion, shapes, headers)
        return await _whole(gateway, request, completion, shapes, headers)
    finally:
        if not handed_on:
            completion.leave()
            gateway.end_delivery(completion)


class _Events(StreamingResponse):
    """A stream that is noted as over also when its reader left before it began."""

    def __init__(self, gateway: Front, completion: Completion, shapes: ReplyShapes, headers: dict[str, str]) -> None:
        super().__init__(self._pieces(shapes), media_type="text/event-stream", headers=headers)
        self._gateway = gateway
        self._completion = completion
        self._finished = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._completion.leave()
            self._gateway.end_delivery(self._completion)
            if not self._finished:
                _reader_left(self._gateway, self._completion)

    async def _pieces(self, shapes: ReplyShapes) -> AsyncIterator[bytes]:
        async with aclosing(streamed(self._completion, shapes, self._gateway.keep_alive)) as events:
            async for piece in events:
                yield piece
        self._finished = True


async def _whole(
    gateway: Front, request: Request, completion: Completion, shapes: ReplyShapes, headers: dict[str, str]
) -> Response:
    answering = asyncio.ensure_future(whole(completion, shapes))
    try:
        while not (await asyncio.wait({answering}, timeout=READER_SECONDS))[0]:
            if await request.is_disconnected():
                _reader_left(gateway, completion)
                return Response(status_code=499)
        return JSONResponse(answering.result(), headers=headers)
    finally:
        answering.cancel()


def _reader_left(gateway: Front, completion: Completion) -> None:
    gateway.metrics.gone.inc()
    gateway.ledger.noted(completion.identifier, "the reader left before the end; what was written by then is paid")
    _log.info("the reader of %s left; no more of its answer is written", completion.identifier)


def _add_refusals(app: FastAPI, gateway: Front) -> None:
    @app.exception_handler(GatewayRefusal)
    async def known(request: Request, error: GatewayRefusal) -> Response:
        return answer_of(error, request.url.path)

    @app.exception_handler(ClientError)
    @app.exception_handler(ChainError)
    async def from_below(request: Request, error: ClientError | ChainError) -> Response:
        return answer_of(gateway.refusal(error), request.url.path)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        refusal = nothing_here(error, request.url.path, request.method)
        return answer_of(refusal, request.url.path, error.headers)

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> Response:
        return answer_of(unknown_error(error), request.url.path)
