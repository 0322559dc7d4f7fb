"""A scheduler for its clients: HTTPS, canonical JSON in, lines of JSON out (``protocol.market.bodies``).

GET /v1/info and GET /v1/prices say who this scheduler is, and what it offers for how much. GET /v1/nodes/{operator}
says how it sees a node. A tab's key may ask back, after its owner lost everything else, for the best word and the
orders that it leaves open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, FastAPI, Path, Query, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from troth.chain.errors import ChainError, ChainRejected
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, messages
from troth.protocol.market.bodies import (
    BODY_LIMIT,
    SUBMISSION_LIMIT,
    Acknowledgement,
    OpenOrder,
    Recovered,
    Recovery,
    ShownSecret,
    Submission,
    TabQuery,
)
from troth.protocol.reputation import everybody_trusted
from troth.protocol.tickets.messages import PayerErrand, TicketPayment
from troth.protocol.types import Hash32, to_address
from troth.scheduler.errors import (
    BadRequest,
    BadSignature,
    Busy,
    ChainAway,
    Expired,
    OrderRefused,
    OtherSplit,
    TabTooSmall,
    TicketsNotTaken,
    UnknownClass,
    UnknownOrder,
    VoucherRefused,
)
from troth.scheduler.orders.choosing import read_preferred
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.nodes_seen import seen_of
from troth.scheduler.orders.offers import ClassOffer, check_rate, offers_checks, price_entry, rated_nodes
from troth.scheduler.orders.service import Orders
from troth.scheduler.orders.shown import shown_tiles
from troth.scheduler.orders.stream import Lines
from troth.scheduler.reading import read_hash
from troth.scheduler.tabs.database import StorageFailed
from troth.scheduler.tabs.fallen import forgive_fallen
from troth.scheduler.tabs.tickets import MOST_TICKETS, TicketDesk

QUERY_SECONDS = 300
"""How far a query's time may lie from this clock: one that leaked says nothing for ever."""
BODY_SECONDS = 30.0
READ_TOGETHER = 16
"""Orders of a tab that is recovered, before others have their turn."""
SALT_HEADER, PREFERRED_HEADER = "troth-salt", "troth-preferred"
Body = TypeVar("Body")
TICKETS_LIMIT = 1 << 17
"""Bytes of a payment: 64 tickets with their signatures as hexadecimal digits, and eight keys."""


async def recovered(context: SchedulerContext, tab_id: Hash32, query: Recovery) -> Recovered:
    """The answer to a query; raises UnknownOrder, Expired, BadSignature.

    A tab may have thousands of open orders, which are read a few at a time: nobody else waits for all of them.
    """
    held = context.client_tabs.get(tab_id)
    if held is None:
        raise UnknownOrder("Nothing was ordered on this tab here", "0x" + tab_id.hex(), "Ask the tab's own scheduler.")
    if abs(context.clock() - query.time) > QUERY_SECONDS:
        raise Expired("The query's time is not now", query.time, "Set the clock, and sign another query.")
    digest = messages.signing_digest(TabQuery(tab_id, query.time), context.operator.domain)
    if not context.key_check(held.tab.key, digest, query.signature):
        raise BadSignature("The tab key did not sign this query", None, messages.BY_ACCOUNT)
    if held.best is None:
        return Recovered(None, ())
    orders: list[OpenOrder] = []
    for place, number in enumerate(held.book.unpaid, 1):
        history = context.store.by_number(tab_id, number)
        if history is not None:
            orders.append(_open(history))
        if place % READ_TOGETHER == 0:
            await asyncio.sleep(0)
    return Recovered(held.best, tuple(orders))


def _open(history: OrderHistory) -> OpenOrder:
    admitted, answered, drawn = history.admitted, history.answered, history.drawn
    return OpenOrder(
        order=admitted.order,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        results=() if answered is None else answered.results,
        draw=None if drawn is None else drawn.draw,
        draw_proof=b"" if drawn is None else drawn.proof,
    )


def shown_info(context: SchedulerContext) -> dict[str, object]:
    """The scheduler, its deployment, and its classes."""
    state = context.ledger.state
    assert state.deployed is not None
    domain = context.operator.domain
    return {
        "operator": context.operator.address,
        "factory": context.factory,
        "bank": domain.contract,
        "chain_id": domain.chain_id,
        "block": context.ledger.block,
        "classes": [_class(offer) for offer in _offers(context)],
    }


def _class(offer: ClassOffer) -> dict[str, object]:
    return {
        "id": "0x" + offer.served.class_id.hex(),
        "model": "0x" + offer.execution_class.model.hex(),
        "name": offer.execution_class.name,
        "ends": list(offer.ends),
        "placement": "auto" if offer.served.placing else "fixed",
        "context": offer.served.context,
    }


def price_list(context: SchedulerContext) -> dict[str, object]:
    """The form of OpenRouter's models list; with less than k + 6 owners in a group a class offers no checks."""
    state, block = context.ledger.state, context.ledger.block
    word = context.reputation
    listed = [
        price_entry(
            offer,
            checks=offers_checks(offer, state, block),
            check_rate=check_rate(offer, state, block, context.suspects),
            decimals=context.asset_decimals,
            settled=context.settled,
            rated=None if word is everybody_trusted else rated_nodes(offer, state, block, word),
            deployments=context.organisations().paying_for(offer.served.class_id),
        )
        for offer in _offers(context)
    ]
    return {"data": listed}


def _offers(context: SchedulerContext) -> list[ClassOffer]:
    found = []
    for class_id in context.offers.ids():
        try:
            found.append(context.offers.offer(class_id, context.ledger.state))
        except UnknownClass:
            continue
    return found


def mount_orders(app: FastAPI, orders: Orders) -> None:
    """Serve everything that a client asks from ``app``; it holds no state of its own."""
    router = APIRouter()
    _offer_routes(router, orders)
    _order_routes(router, orders)
    _tab_routes(router, orders)
    _log_routes(router, orders)
    app.include_router(router)
    app.router.routes.insert(0, _submission(orders))


def _submission(orders: Orders) -> Route:
    """Nothing is asked more often: it is found before all others, and by the plainest of ways."""

    async def submit(request: Request) -> LineResponse:
        preferred = read_preferred(request.headers.get(PREFERRED_HEADER, ""))
        return LineResponse(await orders.submit(await _read(request, Submission, SUBMISSION_LIMIT), preferred))

    return Route("/v1/orders", submit, methods=["POST"])


def _offer_routes(router: APIRouter, orders: Orders) -> None:
    """Who this is, and what it serves at which price."""

    @router.get("/v1/info")
    async def info() -> JSONResponse:
        return JSONResponse(shown_info(orders.context))

    @router.get("/v1/prices")
    async def listed() -> JSONResponse:
        return JSONResponse(price_list(orders.context))

    @router.get("/v1/nodes/{operator}")
    async def node(operator: str) -> JSONResponse:
        try:
            named = to_address(operator)
        except ProtocolError as error:
            raise BadRequest("An operator is an address", operator[:100], error.remedy) from error
        return JSONResponse(seen_of(orders.context, named))

    @router.get("/v1/models/{class_id}/tokenizer")
    async def tokenizer(class_id: str) -> JSONResponse:
        texts = orders.context.offers.served(read_hash(class_id, "class id")).texts
        return JSONResponse(
            {"tokenizer": texts.tokenizer, "chat_template": texts.chat_template, "config": texts.config}
        )


def _order_routes(router: APIRouter, orders: Orders) -> None:
    """An order after its submission, to the tiles of its check."""

    @router.get("/v1/orders/{order_id}")
    async def again(order_id: str, request: Request) -> LineResponse:
        salt = read_hash(request.headers.get(SALT_HEADER, ""), "salt")
        return LineResponse(await orders.again(read_hash(order_id, "order id"), salt))

    @router.post("/v1/orders/{order_id}/end")
    async def end(order_id: str, request: Request) -> JSONResponse:
        salt = read_hash(request.headers.get(SALT_HEADER, ""), "salt")
        orders.end_early(read_hash(order_id, "order id"), salt)
        return JSONResponse({"ending": True})

    @router.get("/v1/orders/{order_id}/last-row")
    async def last_row(order_id: str, request: Request) -> Response:
        salt = read_hash(request.headers.get(SALT_HEADER, ""), "salt")
        found = await orders.last_row(read_hash(order_id, "order id"), salt)
        return Response(canonical.encode(found), media_type="application/json")

    @router.get("/v1/orders/{order_id}/rows/{segment}")
    async def rows(
        order_id: str, request: Request, segment: Annotated[int, Path(ge=0)], start: Annotated[int, Query(ge=0)] = 0
    ) -> JSONResponse:
        salt = read_hash(request.headers.get(SALT_HEADER, ""), "salt")
        piece = await orders.rows(read_hash(order_id, "order id"), salt, segment, start)
        data, imprints = "0x" + piece.data.hex(), "0x" + piece.imprints.hex()
        salted = {"total": piece.total, "head_salt": canonical.to_json(piece.head_salt)}
        return JSONResponse({**salted, "rows": data, "imprints": imprints})

    @router.post("/v1/orders/{order_id}/secret")
    async def secret(order_id: str, request: Request) -> LineResponse:
        shown = await _read(request, ShownSecret, BODY_LIMIT)
        return LineResponse(await orders.show_secret(read_hash(order_id, "order id"), shown.secret))

    @router.post("/v1/orders/{order_id}/tiles")
    async def tiles(order_id: str, request: Request) -> JSONResponse:
        shown = await _read(request, ShownSecret, BODY_LIMIT)
        return JSONResponse(shown_tiles(await orders.show_second(read_hash(order_id, "order id"), shown.secret)))


def _tab_routes(router: APIRouter, orders: Orders) -> None:
    """What is paid on a tab."""

    @router.post("/v1/vouchers")
    async def voucher(request: Request) -> JSONResponse:
        return JSONResponse(await _acknowledge(orders, await _read(request, Acknowledgement, BODY_LIMIT)))

    @router.post("/v1/tabs/{tab_id}/recover")
    async def recover(tab_id: str, request: Request) -> Response:
        query = await _read(request, Recovery, BODY_LIMIT)
        found = await recovered(orders.context, read_hash(tab_id, "tab id"), query)
        return Response(await asyncio.to_thread(canonical.encode, found), media_type="application/json")


def ticket_routes(desk: TicketDesk) -> APIRouter:
    """Money that does not say whose it was."""
    router = APIRouter()

    @router.get("/v1/tickets")
    async def terms() -> JSONResponse:
        return JSONResponse({"contract": desk.terms.contract, "fee": str(desk.terms.fee), "most": MOST_TICKETS})

    @router.post("/v1/tickets")
    async def pay(request: Request) -> JSONResponse:
        payment = await _read(request, TicketPayment, TICKETS_LIMIT)
        with _chain_in_words():
            tab = await desk.pay(payment)
        return JSONResponse({"tab": "0x" + messages.tab_id(tab).hex(), "payer": tab.payer})

    @router.post("/v1/tickets/errands")
    async def carry(request: Request) -> JSONResponse:
        errand = await _read(request, PayerErrand, BODY_LIMIT)
        with _chain_in_words():
            return JSONResponse({"block": await desk.carry(errand)})

    return router


@contextmanager
def _chain_in_words() -> Iterator[None]:
    """What the chain refuses is the client's to know; that it cannot be reached, too."""
    try:
        yield
    except ChainRejected as error:
        raise TicketsNotTaken(error.what, str(error.value)[:200], error.remedy) from error
    except ChainError as error:
        raise ChainAway("The chain took nothing", error.what, "Ask again; nothing is lost.") from error


def _log_routes(router: APIRouter, orders: Orders) -> None:
    """The log's entries, for auditors."""

    @router.get("/v1/log")
    async def numbers() -> JSONResponse:
        return JSONResponse({"entries": orders.book.newest()})

    @router.get("/v1/log/{number}")
    async def entry(number: int) -> Response:
        # A number that SQLite cannot hold is none either.
        data = orders.book.data(number) if 0 < number < 1 << 63 else None
        if data is None:
            return JSONResponse({"error": {"code": "unknown_entry", "message": "No such entry"}}, status_code=404)
        return Response(data, media_type="application/x-ndjson")


def refuse_with_words(app: FastAPI) -> None:
    """Every refusal as {"error": {code, message, remedy, shortfall?}} with its status."""

    @app.exception_handler(OrderRefused)
    async def refused(_request: Request, error: OrderRefused) -> Response:
        return refusal(error)

    @app.exception_handler(StorageFailed)
    async def full(_request: Request, _error: StorageFailed) -> Response:
        return refusal(Busy("This scheduler's disk takes nothing now", 30))


def refusal(error: OrderRefused) -> Response:
    """A refusal as its client reads it."""
    fields: dict[str, object] = {"code": error.code, "message": str(error)[:1000], "remedy": error.remedy}
    if isinstance(error, TabTooSmall):
        fields["shortfall"] = str(error.shortfall)
    if isinstance(error, OtherSplit):
        fields["ends"] = list(error.ends)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Busy) else None
    return JSONResponse({"error": fields}, status_code=error.status, headers=headers)


async def _acknowledge(orders: Orders, given: Acknowledgement) -> dict[str, str]:
    context = orders.context
    record = context.ledger.state.tabs.get(messages.tab_id(given.tab))
    if record is None or given.tab.payee != context.operator.address:
        raise BadRequest("There is no such tab with this scheduler", remedy="Open it first.")
    forgiven = forgive_fallen(context, messages.tab_id(given.tab))
    try:
        held, statements = context.client_tabs.acknowledge(
            given.tab, given.voucher, context.operator.domain, context.key_check
        )
    except ProtocolError as error:
        raise VoucherRefused(error.what, str(error.value)[:200], error.remedy) from error
    if forgiven or statements:
        await context.database.commit(*forgiven, *statements)
    best = held.book.best
    return {"spent": str(best.spent), "acknowledged_through": str(best.acknowledged_through)}


async def _read(request: Request, kind: type[Body], limit: int) -> Body:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise BadRequest(f"This body has at most {limit} bytes", len(body), "Send less.")
    except TimeoutError as error:
        raise BadRequest(f"The body did not come within {BODY_SECONDS:g} s", len(body), "Send it at once.") from error
    try:
        return canonical.decode(kind, bytes(body), limit)
    except ProtocolError as error:
        # Its value may be the prompt: only what is wrong is said.
        raise BadRequest(f"{error.what}: {_said(error.value)}", remedy=error.remedy) from error


def _said(value: object) -> str:
    return value[:200] if isinstance(value, str) else str(value)[:40]


class LineResponse(Response):
    """The lines of an order as they come, the last ones in one piece with the end of the body.

    Nothing listens for a client that goes away: what is sent to it is dropped, until the order ends.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.background, self.status_code = None, 200
        self.raw_headers = [(b"content-type", b"application/x-ndjson")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for fresh, last in self._lines.follow():
            body = b"".join(msgspec.json.encode(line) + b"\n" for line in fresh)
            await send({"type": "http.response.body", "body": body, "more_body": not last})
