"""What members ask each other in an epoch, over HTTPS pinned to the key that the Committee contract names.

POST /v1/reputation/proof      the proof that draws this epoch's leader, of the member that led last
POST /v1/reputation/openings   the epoch's prompts, for its leader
POST /v1/reputation/proposals  sign this update, after computing it again
POST /v1/reputation/lists      the list of a hash, for whoever missed the update that fixed it
POST /v1/reputation/sums       what epochs have added up to, for the same
POST /v1/reputation/signed     signatures under updates of this epoch, to settle it or to convict who signed two

Each request carries its sender's signature over kind, body and epoch in its headers (``requests``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from troth.committee import requests
from troth.committee.errors import RequestRefused
from troth.committee.rating.epochs import LARGEST_FILE, EpochFile
from troth.committee.rating.member import RatingMember, decode_proposal_of_epoch, encode_message
from troth.committee.rating.missed import ADDED_UP, LISTED
from troth.committee.requests import RequestPlaces
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

PROVE, HAND_OVER, REVIEW, SIGNED = "epoch proof", "epoch openings", "epoch proposal", "epoch signed"
PATHS = {
    PROVE: "proof", HAND_OVER: "openings", REVIEW: "proposals", SIGNED: "signed", LISTED: "lists", ADDED_UP: "sums",
}  # fmt: skip
LARGEST_BODY = {REVIEW: 8 * 2**20, SIGNED: LARGEST_FILE, LISTED: 32, ADDED_UP: 32}
LARGEST_REPLY = {
    PROVE: 2**14, HAND_OVER: 4 * 2**20, REVIEW: 2**14, SIGNED: 2**14, LISTED: 2**15, ADDED_UP: 2**17,
}  # fmt: skip
"""Bytes: a list's prompts are the most."""
SECONDS = {PROVE: 5.0, HAND_OVER: 30.0, REVIEW: 600.0, SIGNED: 20.0, LISTED: 10.0, ADDED_UP: 10.0}
"""How long an answer may take; before a member signs it computes every answer again."""
GRACE = 10.0
AT_ONCE = {HAND_OVER: 2, REVIEW: 2, SIGNED: 4, LISTED: 4, ADDED_UP: 4}


@dataclass(frozen=True, slots=True)
class MemberCalls:
    """Requests of one member to the others."""

    secret: bytes
    operator: Address
    membership: Callable[[], CommitteeMembership]

    async def ask(self, operator: Address, kind: str, body: bytes, epoch: int) -> bytes:
        """A member's answer; empty where it gave none."""
        member = self.membership().member(operator)
        if member is None:
            return b""
        headers = requests.headers_of(kind, body, epoch, self.membership().domain, self.secret)
        path = "/v1/reputation/" + PATHS[kind]
        try:
            return await requests.send(member, path, body, headers, SECONDS[kind], largest=LARGEST_REPLY[kind])
        except OverlayError as error:
            log.info("%s gave no %s: %s", member.endpoint, kind, error)
            return b""

    async def ask_all(
        self, kind: str, body: bytes, epoch: int, *, enough: int, among: Collection[Address] | None = None
    ) -> dict[Address, bytes]:
        """The answers of those who gave one; once there are ``enough``, the others have ``GRACE`` seconds more.

        So a member that keeps a connection open without a word holds nobody up. ``among``: whom to ask; None for all.
        """
        others = [one.operator for one in self.membership().members if one.operator != self.operator]
        others = others if among is None else [one for one in others if one in among]
        tasks = {asyncio.create_task(self.ask(one, kind, body, epoch)): one for one in others}
        answers: dict[Address, bytes] = {}
        waiting, limit = set(tasks), None
        try:
            while waiting and (limit is None or time.monotonic() < limit):
                if limit is None and len(answers) >= enough:
                    limit = time.monotonic() + GRACE
                patience = None if limit is None else max(0.0, limit - time.monotonic())
                done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                answers |= {tasks[one]: one.result() for one in done if one.result()}
        finally:
            for one in waiting:
                one.cancel()
        return answers


def rating_router(rater: RatingMember, membership: Callable[[], CommitteeMembership]) -> APIRouter:
    """The routes; who is no member is refused before its body is read."""
    router = APIRouter(prefix="/v1/reputation")
    places = {kind: RequestPlaces(count) for kind, count in AT_ONCE.items()}

    @router.post("/proof")
    async def proof(request: Request) -> Response:
        announced = requests.announced_by_member(PROVE, request, membership())
        return requests.octets(await rater.prove(announced.slot))

    @router.post("/openings")
    async def openings(request: Request) -> Response:
        announced = requests.announced_by_member(HAND_OVER, request, membership())
        async with places[HAND_OVER].of(request):
            return requests.octets(encode_message(await rater.hand_over(announced.sender, announced.slot)))

    @router.post("/proposals")
    async def proposals(request: Request) -> Response:
        announced = requests.announced_by_member(REVIEW, request, membership())
        async with places[REVIEW].of(request):
            proposal = decode_proposal_of_epoch(await requests.announced_body(request, announced, LARGEST_BODY[REVIEW]))
            if proposal.file.epoch != announced.slot:
                raise RequestRefused("The proposal is of another epoch than its headers say", proposal.file.epoch)
            with _fields():
                return requests.octets(encode_message(await rater.review(announced.sender, proposal)))

    @router.post("/lists")
    async def lists(request: Request) -> Response:
        return requests.octets(rater.listed(await named(LISTED, request)))

    @router.post("/sums")
    async def sums(request: Request) -> Response:
        return requests.octets(rater.added_up(await named(ADDED_UP, request)))

    async def named(kind: str, request: Request) -> Hash32:
        announced = requests.announced_by_member(kind, request, membership())
        async with places[kind].of(request):
            body = await requests.announced_body(request, announced, LARGEST_BODY[kind])
        if len(body) != 32:
            raise RequestRefused("A hash has 32 bytes", len(body))
        return Hash32(body)

    @router.post("/signed")
    async def signed(request: Request) -> Response:
        announced = requests.announced_by_member(SIGNED, request, membership())
        async with places[SIGNED].of(request):
            body = await requests.announced_body(request, announced, LARGEST_BODY[SIGNED])
            try:
                file = msgspec.msgpack.decode(body, type=EpochFile)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise RequestRefused("The bytes are no file of an epoch", error) from error
            with _fields():
                await rater.hear(file)
        return requests.octets(b"\x01")

    return router


@contextmanager
def _fields() -> Iterator[None]:
    """Refuse a message of which a field is no address, hash or number."""
    try:
        yield
    except ProtocolError as error:
        raise RequestRefused("A field of the message is not what it should be", str(error)) from error
