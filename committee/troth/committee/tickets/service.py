"""Tickets over HTTPS: what members ask each other for an epoch's keys, and what clients ask every member.

POST /v1/tickets/dealings      member to member: a dealing, and the receiver's shares
POST /v1/tickets/holdings      member to member: which dealings do you hold?
POST /v1/tickets/proposals     member to member: sign the keys that these dealings make
POST /v1/tickets/dealers       member to member: whose dealings make the keys that the chain names?
GET  /v1/tickets/keys/{epoch}  anybody: the keys with their commitments
POST /v1/tickets/signatures    anybody: sign the blinded points of a purchase

A purchase on chain names the points that are signed for it, so that nothing has to be remembered of what was signed:
asked again, a member gives the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import Response

from troth.chain.adapter import Chain
from troth.committee.directory.admission import Posts
from troth.committee.errors import Full, RequestRefused, TicketsRefused
from troth.committee.requests import (
    Announced,
    RequestPlaces,
    announced_body,
    announced_by_member,
    body_of,
    host_of,
    octets,
)
from troth.committee.tickets.keys import DealtShares, KeyProposal, MemberShare, TicketKeyMember, decode_body
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import threshold
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import InvalidTicket, decode_point
from troth.protocol.tickets.purchases import Purchase, root_of
from troth.protocol.tickets.signing import encoded, sign_blinded
from troth.protocol.tickets.wire import LARGEST_REQUEST, decode_request, encode_keys

DEAL, HOLDINGS, PROPOSE, DEALERS = "ticket dealing", "ticket holdings", "ticket keys", "ticket dealers"
PATHS = {DEAL: "dealings", HOLDINGS: "holdings", PROPOSE: "proposals", DEALERS: "dealers"}
LARGEST_BODY = {DEAL: 2**18, HOLDINGS: 0, PROPOSE: 2**13}
SIGNING_AT_ONCE = 2
"""Purchases whose points are signed at once: 256 points are 60 ms of a core."""
BODIES_AT_ONCE = 8


class TicketMetrics:
    """What a member counts of tickets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.signed = Counter("troth_committee_tickets_signed", "Blinded points signed.", registry=registry)
        self.refused = Counter("troth_committee_tickets_refused", "Requests refused.", registry=registry)


@dataclass(eq=False)
class TicketOffice:
    """A member as its clients and the other members see it.

    Args:
        chain: of the Tickets contract.
        confirmations: blocks after which a purchase counts; what a reorganisation takes back must not be signed.
    """

    member: TicketKeyMember
    membership: Callable[[], CommitteeMembership]
    chain: Chain
    confirmations: int
    metrics: TicketMetrics
    _signing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SIGNING_AT_ONCE))

    async def share(self, epoch: int) -> MemberShare:
        """This member's share of an epoch's keys; raises TicketsRefused where it has none."""
        now = await self.chain.read(messages.epoch_now())
        if epoch not in {now - 1, now}:
            raise TicketsRefused(f"Tickets of epochs {max(0, now - 1)} and {now} are signed", epoch, "Buy new ones.")
        digest = await self.chain.read(messages.dealing_of(epoch))
        found = await asyncio.to_thread(self.member.share, epoch, digest)
        if found is None:
            raise TicketsRefused("This member has no share of the epoch's key", epoch, "Ask the other members.")
        return found

    async def sign(self, purchase: Purchase, points: tuple[bytes, ...]) -> bytes:
        """This member's part of each signature, 96 bytes each; raises TicketsRefused."""
        if root_of(points) != purchase.root:
            raise TicketsRefused("These points are not those of the purchase", None, "Send all of them, in order.")
        block = max(0, await self.chain.block_number() - self.confirmations)
        if not await self.chain.read(messages.is_purchase(purchase.identifier), block):
            what = f"The chain does not know this purchase at block {block}"
            raise TicketsRefused(what, purchase.identifier, f"Ask again {self.confirmations} blocks after it.")
        share = await self.share(purchase.epoch)
        async with self._signing:
            parts = await asyncio.to_thread(_parts, points, share.shares[purchase.denomination])
        self.metrics.signed.inc(len(points))
        return parts


def _parts(points: tuple[bytes, ...], share: int) -> bytes:
    try:
        return encoded([sign_blinded(decode_point(point), share) for point in points])
    except InvalidTicket as error:
        raise TicketsRefused(error.what, error.value, error.remedy) from error


def ticket_router(office: TicketOffice, posts: Posts) -> APIRouter:
    """The routes; who is no member is refused before a dealing or proposal is read."""
    router = APIRouter(prefix="/v1/tickets")
    places = RequestPlaces(BODIES_AT_ONCE)
    _member_routes(router, office)

    @router.get("/keys/{epoch}")
    async def keys(epoch: int, request: Request) -> Response:
        posts.require(host_of(request))
        if not 0 <= epoch < 2**53:
            raise RequestRefused("This is no epoch", epoch)
        return octets(encode_keys((await office.share(epoch)).keys))

    @router.post("/signatures")
    async def signatures(request: Request) -> Response:
        try:
            posts.require(host_of(request))
            if places.full_for(request):
                raise Full("This member signs as much as it can", None, "Ask again in a second.")
            async with places.of(request):
                purchase, points = _decoded(await body_of(request, LARGEST_REQUEST))
                return octets(await office.sign(purchase, points))
        except (RequestRefused, TicketsRefused, Full):
            office.metrics.refused.inc()
            raise

    return router


def _member_routes(router: APIRouter, office: TicketOffice) -> None:
    """What members ask each other."""
    member = office.member

    @router.post("/dealings")
    async def dealings(request: Request) -> Response:
        announced = announced_by_member(DEAL, request, office.membership())
        given = decode_body(await announced_body(request, announced, LARGEST_BODY[DEAL]), DealtShares)
        await _require_epoch(office, given.epoch, announced)
        operators = [one.operator for one in office.membership().members]
        await asyncio.to_thread(member.take, announced.sender, given, operators)
        return octets(b"\x01")

    @router.post("/holdings")
    async def holdings(request: Request) -> Response:
        announced = announced_by_member(HOLDINGS, request, office.membership())
        held = await asyncio.to_thread(member.holdings, announced.slot)
        return octets(msgspec.msgpack.encode(sorted(held.items())))

    @router.post("/proposals")
    async def proposals(request: Request) -> Response:
        announced = announced_by_member(PROPOSE, request, office.membership())
        proposal = decode_body(await announced_body(request, announced, LARGEST_BODY[PROPOSE]), KeyProposal)
        await _require_epoch(office, proposal.epoch, announced)
        needed = threshold(len(office.membership().members))
        _, signature = await asyncio.to_thread(member.sign, proposal, needed)
        return octets(signature)

    @router.post("/dealers")
    async def dealers(request: Request) -> Response:
        announced = announced_by_member(DEALERS, request, office.membership())
        await _require_epoch(office, announced.slot, announced)
        member.asked_by(announced.slot, announced.sender)
        digest = await office.chain.read(messages.dealing_of(announced.slot))
        found = await asyncio.to_thread(member.dealers, announced.slot, digest)
        if found is None:
            raise TicketsRefused("This member has no share of the epoch's key", announced.slot, "Ask the others.")
        return octets(msgspec.msgpack.encode(found))


async def _require_epoch(office: TicketOffice, epoch: int, announced: Announced) -> None:
    now = await office.chain.read(messages.epoch_now())
    if epoch != announced.slot or epoch not in {now, now + 1}:
        raise TicketsRefused(f"Keys are dealt for epochs {now} and {now + 1}", epoch, "Wait for the epoch.")


def _decoded(data: bytes) -> tuple[Purchase, tuple[bytes, ...]]:
    try:
        return decode_request(data)
    except InvalidTicket as error:
        raise TicketsRefused(error.what, error.value, error.remedy) from error
