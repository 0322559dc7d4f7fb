"""What members of a committee are asked for tickets: openly, since a purchase names its buyer anyway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from troth.client.errors import TicketsUnusable
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import CommitteeMember
from troth.protocol.tickets.curve import G1_BYTES, InvalidTicket, decode_point, encode_point
from troth.protocol.tickets.dealing import EpochKeys
from troth.protocol.tickets.purchases import Purchase, TicketSecret, points_of
from troth.protocol.tickets.signing import gather
from troth.protocol.tickets.wire import LARGEST_KEYS, decode_keys, decode_parts, encode_request
from troth.protocol.types import Address, Hash32
from troth.transport.errors import OverlayError, decode_failure
from troth.transport.https import naming_errors, pinned_client

log = logging.getLogger(__name__)

MEMBER_SECONDS = 20.0

Ask = Callable[[CommitteeMember, str, str, bytes, int], Awaitable[bytes]]
"""A member's answer to a method, a path and a body, at most so many bytes; raises TicketsUnusable."""


@dataclass(frozen=True, slots=True)
class SignedTickets:
    """Signatures in the tickets' order, 96 bytes each, and the members that signed nonsense."""

    signatures: tuple[bytes, ...]
    liars: tuple[Address, ...]


async def ask_member(member: CommitteeMember, method: str, path: str, body: bytes, largest: int) -> bytes:
    """An `Ask` over HTTPS, pinned to the key that the chain names."""
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(MEMBER_SECONDS),
                pinned_client(member.endpoint, member.tls_key_hash, MEMBER_SECONDS) as client,
                client.stream(method, path, content=body or None) as response,
            ):
                answer = bytearray()
                async for part in response.aiter_raw():
                    answer += part
                    if len(answer) > largest:
                        raise TicketsUnusable("A member's answer is too long", member.endpoint, "Ask the others.")
    except (TimeoutError, httpx.HTTPError, OverlayError) as error:
        raise TicketsUnusable("A member does not answer", f"{member.endpoint}: {error}", "Ask again.") from error
    if response.status_code == httpx.codes.OK:
        return bytes(answer)
    failure = decode_failure(bytes(answer))
    said = f"HTTP {response.status_code}" if failure is None else failure.message
    raise TicketsUnusable("A member refused", f"{member.endpoint}: {said}", "Ask again later.")


async def epoch_keys(membership: CommitteeMembership, epoch: int, digest: Hash32, ask: Ask = ask_member) -> EpochKeys:
    """An epoch's keys, from the first member that has those that the chain names; raises TicketsUnusable."""
    failure: Exception | None = None
    for member in membership.members:
        try:
            return decode_keys(await ask(member, "GET", f"/v1/tickets/keys/{epoch}", b"", LARGEST_KEYS), digest)
        except (TicketsUnusable, InvalidTicket) as error:
            failure = error
    raise TicketsUnusable("No member gives the epoch's keys", failure, "Ask again in a minute.")


async def signed_tickets(
    membership: CommitteeMembership,
    keys: EpochKeys,
    purchase: Purchase,
    secrets: Sequence[TicketSecret],
    ask: Ask = ask_member,
) -> SignedTickets:
    """Signatures of all tickets of a purchase; a member that signs nonsense is named, and the others suffice.

    Raises TicketsUnusable where fewer than the threshold answer rightly.
    """
    points = points_of(secrets)
    body, size = encode_request(purchase, points), len(points) * G1_BYTES

    async def part(number: int, operator: Address) -> tuple[int, tuple[bytes, ...]] | None:
        member = membership.member(operator)
        if member is None:
            return None
        try:
            answer = await ask(member, "POST", "/v1/tickets/signatures", body, size + 4096)
            return number, decode_parts(answer, len(points))
        except InvalidTicket:
            return number, ()
        except TicketsUnusable as error:
            log.info("%s signed no tickets: %s", member.endpoint, error)
            return None

    asked = await asyncio.gather(*(part(number, operator) for number, operator in enumerate(keys.operators, 1)))
    answers = dict(one for one in asked if one is not None)
    blinded, blindings = [decode_point(one) for one in points], [one.blinding for one in secrets]
    try:
        made = await asyncio.to_thread(gather, blinded, blindings, answers, keys, purchase.denomination)
    except InvalidTicket as error:
        raise TicketsUnusable(error.what, error.value, error.remedy) from error
    liars = tuple(keys.operators[number - 1] for number in sorted(made.liars))
    return SignedTickets(tuple(map(encode_point, made.signatures)), liars)
