"""What a member answers over HTTPS.

GET  /v1/list          the newest signed list, with its digest as ETag (304 if that is known)
POST /v1/relays        a relay's descriptor
POST /v1/destinations  a destination's descriptor
GET  /v1/nonce         a nonce for one machine's evidence
POST /v1/attestations  evidence of what a machine runs; the answer says what was found
POST /v1/opinions      member to member: which of these entries would you list?
POST /v1/proposals     member to member: sign the list that follows from these
POST /v1/lists         member to member: more than 2/3 have signed
POST /v1/reputation/…  member to member, where this one rates nodes (rating_requests)
…    /v1/tickets/…     members and clients, where this one signs tickets (ticket_service)
GET  /livez, /readyz, /metrics
"""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from troth.committee import requests
from troth.committee.directory.admission import Posts
from troth.committee.directory.member import Member
from troth.committee.directory.proposal import LARGEST_PROPOSAL, decode_proposal
from troth.committee.directory.vouching import Vouching
from troth.committee.errors import CommitteeError, RequestRefused
from troth.committee.rating.member import RatingMember
from troth.committee.rating.requests import rating_router
from troth.committee.requests import RequestPlaces, body_of
from troth.committee.tickets.service import TicketOffice, ticket_router
from troth.overlay.attestation.errors import AttestationError
from troth.overlay.directory.attesting import (
    ATTESTATION_PATH,
    LARGEST_SHOWING,
    NONCE_PATH,
    FoundMeasurement,
    decode_showing,
)
from troth.overlay.directory.descriptors import LARGEST_DESCRIPTOR
from troth.overlay.directory.errors import DirectoryError, ListStale
from troth.overlay.directory.signing import LARGEST_SIGNED
from troth.transport.errors import encode_failure, failure_of
from troth.transport.health import health_routes

MEMBERS_AT_ONCE = 4
"""Bodies of members that are read and checked at once; each may have megabytes. Leader's requests have places of their
own: another member that sends slowly cannot hold up a slot that is not its own."""
MACHINES_AT_ONCE = 16
"""Bodies of evidence that are read at once, half a megabyte each at most."""


def member_app(
    member: Member,
    posts: Posts,
    vouching: Vouching,
    rater: RatingMember | None = None,
    tickets: TicketOffice | None = None,
) -> FastAPI:
    """The application; what it keeps is in `member` and `vouching`, in `rater` for one that rates nodes, and in
    `tickets` for one that signs them."""
    app = FastAPI(title="Troth committee", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(health_routes(member.reasons, member.metrics.registry))
    if rater is not None:
        app.include_router(rating_router(rater, lambda: member.membership))
    if tickets is not None:
        app.include_router(ticket_router(tickets, posts))
    app.include_router(_vouching_router(member, posts, vouching))
    _answer_errors(app)
    leaders, everybody = RequestPlaces(MEMBERS_AT_ONCE), RequestPlaces(MEMBERS_AT_ONCE)

    @app.get("/v1/list")
    async def signed_list(request: Request) -> Response:
        return _served_list(member, request)

    @app.post("/v1/relays")
    async def relays(request: Request) -> Response:
        return await _post(member, posts, request, "relay")

    @app.post("/v1/destinations")
    async def destinations(request: Request) -> Response:
        return await _post(member, posts, request, "destination")

    @app.post("/v1/opinions")
    async def opinions(request: Request) -> Response:
        announced = _from_leader(member, requests.OPINION, request)
        async with leaders.of(request):
            body = await requests.announced_body(request, announced, LARGEST_PROPOSAL)
            names = await member.opinion(decode_proposal(body))
        return requests.octets(msgspec.msgpack.encode(sorted(names)))

    @app.post("/v1/proposals")
    async def proposals(request: Request) -> Response:
        announced = _from_leader(member, requests.PROPOSAL, request)
        async with leaders.of(request):
            proposal = decode_proposal(await requests.announced_body(request, announced, LARGEST_PROPOSAL))
            if proposal.valid_after != announced.slot:
                raise RequestRefused("The proposal is for another slot than its headers say", proposal.valid_after)
            _, signature = await member.sign(proposal)
        return requests.octets(signature)

    @app.post("/v1/lists")
    async def lists(request: Request) -> Response:
        requests.announced_by_member(requests.LIST, request, member.membership)
        async with everybody.of(request):
            member.take(await body_of(request, LARGEST_SIGNED))
        return requests.octets(b"")

    return app


def _served_list(member: Member, request: Request) -> Response:
    """The newest list, or that the asker has it."""
    data, digest = member.served()
    tag = f'"{digest}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type="application/octet-stream", headers=headers)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(CommitteeError)
    async def refused(_request: Request, error: CommitteeError) -> Response:
        return _refusal(error, error.status)

    @app.exception_handler(DirectoryError)
    async def not_believed(_request: Request, error: DirectoryError) -> Response:
        return _refusal(error, 503 if isinstance(error, ListStale) else 422)

    @app.exception_handler(AttestationError)
    async def not_vouched_for(_request: Request, error: AttestationError) -> Response:
        return _refusal(error, 422)


def _vouching_router(member: Member, posts: Posts, vouching: Vouching) -> APIRouter:
    router, machines = APIRouter(), RequestPlaces(MACHINES_AT_ONCE)

    @router.get(NONCE_PATH)
    async def nonce(request: Request) -> Response:
        posts.require(requests.host_of(request))
        return requests.octets(vouching.nonce())

    @router.post(ATTESTATION_PATH)
    async def attestations(request: Request) -> Response:
        posts.require(requests.host_of(request))
        async with machines.of(request):
            shown = decode_showing(await body_of(request, LARGEST_SHOWING))
        found = await vouching.take(shown, member.membership.domain)
        return JSONResponse(msgspec.to_builtins(FoundMeasurement(str(found.measurement), found.until)))

    return router


async def _post(member: Member, posts: Posts, request: Request, kind: str) -> Response:
    try:
        posts.require(requests.host_of(request))
        body = await body_of(request, LARGEST_DESCRIPTOR)
        if not member.admission.knows(body, kind):
            posts.require_newcomer()
        await member.admission.take(body, kind, member.membership.domain)
    except (CommitteeError, DirectoryError):
        member.metrics.refused.labels("posted").inc()
        raise
    member.metrics.taken.labels(kind).inc()
    return JSONResponse({"taken": True, "holds_seconds": member.schedule.valid})


def _from_leader(member: Member, kind: str, request: Request) -> requests.Announced:
    """What the slot's leader announces; a stranger's body is not read."""
    announced = requests.announced_by_member(kind, request, member.membership)
    leader = member.schedule.leader(announced.slot, member.membership)
    if announced.sender != leader or not member.schedule.is_current(announced.slot, member.clock()):
        raise RequestRefused(f"The leader of this slot is {leader}", announced.sender, "Wait for your turn.")
    return announced


def _refusal(error: Exception, status: int) -> Response:
    return Response(encode_failure(failure_of(error)), status_code=status, media_type="application/json")
