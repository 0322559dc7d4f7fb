"""Requests to a member: who sends them, bodies in bounded bytes and seconds, and places of which no address has all.

Between members a request carries its sender's signature over kind, body and slot in its headers. So a member knows
before it reads a body whether a stranger sends it, and what a body must hash to.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import Request, Response

from troth.committee.errors import Full, RequestRefused
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol import typed_data
from troth.protocol.committee import CommitteeMember
from troth.protocol.errors import InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, Uint64
from troth.transport.errors import OverlayError, decode_failure, remote_failure
from troth.transport.https import naming_errors, pinned_client

SIGNATURE_HEADER, BODY_HEADER, SLOT_HEADER = "troth-signature", "troth-body", "troth-slot"
OPINION, PROPOSAL, LIST = "opinion", "proposal", "list"
LARGEST_ANSWER = 2**18
BODY_SECONDS = 20.0
"""In which a body must come."""


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """EIP-712 message of a member: this body, for this purpose, in the slot that began at this Unix time."""

    kind: str
    body: Hash32
    slot: Uint64


@dataclass(frozen=True, slots=True)
class Announced:
    """What the headers of a request say, signature checked."""

    sender: Address
    body: Hash32
    slot: int


def headers_of(kind: str, body: bytes, slot: int, domain: Domain, secret: bytes) -> dict[str, str]:
    """The headers of a request."""
    message = MemberRequest(kind, Hash32(keccak256(body)), slot)
    signature = typed_data.sign(message, domain, secret)
    return {SIGNATURE_HEADER: signature.hex(), BODY_HEADER: message.body.hex(), SLOT_HEADER: str(slot)}


def announced(kind: str, headers: httpx.Headers | dict[str, str], domain: Domain) -> Announced:
    """Who sends what; raises RequestRefused."""
    try:
        signature = bytes.fromhex(headers[SIGNATURE_HEADER])
        body, slot = bytes.fromhex(headers[BODY_HEADER]), int(headers[SLOT_HEADER][:20])
        if len(body) != 32 or not 0 <= slot < 2**53:
            raise ValueError("a hash of 32 bytes and a time")
        sender = typed_data.recover(MemberRequest(kind, Hash32(body), slot), domain, signature)
    except (KeyError, ValueError, InvalidSignature) as error:
        raise RequestRefused("The headers of a member's request are missing or wrong", error) from error
    return Announced(sender, Hash32(body), slot)


def announced_by_member(kind: str, request: Request, membership: CommitteeMembership) -> Announced:
    """What a member announces in its headers; raises RequestRefused for a stranger."""
    said = announced(kind, dict(request.headers), membership.domain)
    if membership.member(said.sender) is None:
        raise RequestRefused("Only members may ask this", said.sender)
    return said


def require_body(body: bytes, request: Announced) -> None:
    """Raise RequestRefused unless this is the body that was announced."""
    if keccak256(body) != request.body:
        raise RequestRefused("The body is another than its sender signed", len(body))


async def send(
    member: CommitteeMember,
    path: str,
    body: bytes,
    headers: dict[str, str],
    seconds: float,
    *,
    largest: int = LARGEST_ANSWER,
) -> bytes:
    """A member's answer; raises an OverlayError (RemoteFailure where it refused)."""
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(seconds),
                pinned_client(member.endpoint, member.tls_key_hash, seconds) as client,
                client.stream("POST", path, content=body, headers=headers) as response,
            ):
                answer = await _bounded(response, largest)
    except (TimeoutError, httpx.HTTPError) as error:
        raise OverlayError(f"{member.endpoint} did not answer within {seconds:g} s", error) from error
    if response.status_code == 200:
        return answer
    failure = decode_failure(answer)
    if failure is None:
        raise OverlayError(f"{member.endpoint} answered {response.status_code}")
    raise remote_failure(member.endpoint, failure)


async def _bounded(response: httpx.Response, largest: int) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > largest:
            raise OverlayError(f"A member's answer has at most {largest} bytes", len(body))
    return bytes(body)


def host_of(request: Request) -> object:
    """The sender's address, or the IPv6 network of the size that one customer gets."""
    if request.client is None:
        return None
    address = ipaddress.ip_address(request.client.host.partition("%")[0])
    return address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False)


async def body_of(request: Request, largest: int) -> bytes:
    """The body; raises Full for more than ``largest`` bytes, RequestRefused where it does not come in time."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    raise Full(f"This takes at most {largest} bytes", len(body))
    except TimeoutError as error:
        raise RequestRefused(f"The body did not come within {BODY_SECONDS:g} s", len(body)) from error
    return bytes(body)


async def announced_body(request: Request, said: Announced, largest: int) -> bytes:
    """The body that a member announced; raises Full or RequestRefused."""
    body = await body_of(request, largest)
    require_body(body, said)
    return body


def octets(content: bytes) -> Response:
    """An answer of bytes."""
    return Response(content, media_type="application/octet-stream")


class RequestPlaces:
    """So many requests at once, of one address at most half of them, so that a slow sender leaves room for others."""

    def __init__(self, count: int) -> None:
        self._all = asyncio.Semaphore(count)
        self._share = max(1, count // 2)
        self._hosts: dict[object, tuple[asyncio.Semaphore, int]] = {}
        """By address: its share, and how many requests of it hold a place or wait for one."""

    def full_for(self, request: Request) -> bool:
        """Whether a request from this address would have to wait."""
        known = self._hosts.get(host_of(request))
        return self._all.locked() or (known is not None and known[0].locked())

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[None]:
        """Hold a place, waiting for one first."""
        host = host_of(request)
        share, users = self._hosts.get(host, (asyncio.Semaphore(self._share), 0))
        self._hosts[host] = share, users + 1
        try:
            async with share, self._all:
                yield
        finally:
            share, users = self._hosts.pop(host)
            if users > 1:
                self._hosts[host] = share, users - 1
