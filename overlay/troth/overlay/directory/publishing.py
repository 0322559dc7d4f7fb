"""Telling the committee's members again and again where a relay or a destination is."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

import httpx
import msgspec

from troth.chain.duty import Duty
from troth.overlay.attestation.measurement import Attested
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.directory.codec import LONGEST_VALIDITY
from troth.overlay.directory.descriptors import SignedDestination, SignedRelay, Signer, encode_descriptor
from troth.overlay.directory.errors import DescriptorRefused, DirectoryUnavailable
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import CommitteeMember, threshold
from troth.transport.errors import OverlayError, decode_failure, remote_failure
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import TlsIdentity

log = logging.getLogger(__name__)

RELAY_PATH, DESTINATION_PATH = "/v1/relays", "/v1/destinations"
PUBLISH_SECONDS = 30.0
"""For one member's answer: it connects to whom it is told of first."""
AGAIN_SECONDS, RETRY_SECONDS = 1800.0, 30.0
ANSWER_BYTES = 8192
TIMES_HELD = 3
"""Publications in the time for which members hold one: two may be lost on the way."""
SHORTEST_PAUSE = 1.0

Descriptor = SignedRelay | SignedDestination


class Taken(msgspec.Struct, frozen=True):
    """A member's answer where it took a descriptor: for how many seconds from its signature on it holds it."""

    taken: bool
    holds_seconds: Annotated[int, msgspec.Meta(gt=0, le=LONGEST_VALIDITY)]


class Published(NamedTuple):
    """How many members took a descriptor, and for how many seconds it is held by the median of their words.

    More than two thirds took it, and of all members less than a third lies: the median lies between honest words.
    ``reasons``: why the others did not; the lists that one of them leads leave the entry out.
    """

    members: int
    holds_seconds: float
    reasons: tuple[str, ...] = ()


Outcome = dict[str, OverlayError | Taken]


async def publish(descriptor: Descriptor, membership: CommitteeMembership) -> Outcome:
    """Post to every member at once; by endpoint, why a member refused it, or its word where it was taken."""
    path = RELAY_PATH if isinstance(descriptor, SignedRelay) else DESTINATION_PATH
    body = encode_descriptor(descriptor)
    members = membership.members
    results = await asyncio.gather(*(_post(member, path, body) for member in members), return_exceptions=True)
    outcome: Outcome = {}
    for member, result in zip(members, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, OverlayError):
            raise result
        outcome[member.endpoint] = result
    return outcome


def require_enough(outcome: Outcome) -> Published:
    """Who took it; raises DescriptorRefused unless they are more than 2/3 of the members, with their reasons."""
    taken = [word for word in outcome.values() if isinstance(word, Taken)]
    reasons = tuple(f"{place}: {word.what}" for place, word in outcome.items() if not isinstance(word, Taken))
    if len(taken) < threshold(len(outcome)):
        raise DescriptorRefused(
            f"{len(taken)} of {len(outcome)} members took the descriptor: it will not be listed",
            "; ".join(reasons),
            "See each member's reason; mostly its own connection to the published address failed.",
        )
    return Published(len(taken), statistics.median(word.holds_seconds for word in taken), reasons)


async def publish_destination(
    secret: bytes,
    identity: TlsIdentity,
    place: PinnedAddress,
    membership: CommitteeMembership,
    *,
    seal_key: bytes,
    kind: str,
    attested: Attested | None = None,
) -> Published:
    """Publish a destination once; who took it, and for how long. Raises an OverlayError if they are too few.

    Args:
        secret: the operator's secp256k1 key (`Operator.secret`); on chain it must be bonded as `kind`.
        identity: the TLS identity that answers at `place`.
        seal_key: 32 bytes, X25519, to which clients seal.
        kind: "scheduler" or "node".
        attested: what the members vouch for, see `attesting.attest`.
    """
    signer = Signer(secret, identity, membership.domain)
    descriptor = signer.destination(place, seal_key, kind, int(time.time()), attested)
    return require_enough(await publish(descriptor, membership))


async def keep_publishing(
    once: Callable[[], Awaitable[Published]], again: float = AGAIN_SECONDS, retry: float = RETRY_SECONDS
) -> None:
    """Call `once` for ever: after `again`, and in any case several times before the committee would forget the
    descriptor.

    Members that did not take it are told again soon, and ever later while they do not: one that was away for a moment
    leads lists, too, and one that never takes it costs little. Where too few took it nobody finds this entry, so that
    the pauses grow to `retry` seconds and no further.
    """
    pause = soon = SHORTEST_PAUSE

    async def turn() -> None:
        nonlocal pause, soon
        done = await once()
        pause = max(min(again, done.holds_seconds / TIMES_HELD), SHORTEST_PAUSE)
        log.info("published to %d members, which hold it for %g s", done.members, done.holds_seconds)
        if done.reasons:
            log.info("%d members did not take it, and are told again: %s", len(done.reasons), "; ".join(done.reasons))
            pause, soon = min(pause, soon), 2 * soon
        else:
            soon = SHORTEST_PAUSE

    longest = min(retry, again)
    await Duty("publishing", turn, every=lambda: pause, retry=min(SHORTEST_PAUSE, longest), longest=longest).run()


async def _post(member: CommitteeMember, path: str, body: bytes) -> Taken:
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(PUBLISH_SECONDS),
                pinned_client(member.endpoint, member.tls_key_hash, PUBLISH_SECONDS) as client,
                client.stream("POST", path, content=body) as response,
            ):
                answer = await _start_of(response)
                if response.status_code == 200:
                    return msgspec.json.decode(answer, type=Taken)
                raise _refusal(member, response.status_code, answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"{member.endpoint} does not say for how long it holds the descriptor"
        raise DirectoryUnavailable(what, error, "That member needs this release.") from error
    except (TimeoutError, httpx.HTTPError) as error:
        raise DirectoryUnavailable(f"{member.endpoint} did not answer", error) from error


async def _start_of(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > ANSWER_BYTES:
            break
    return bytes(body[:ANSWER_BYTES])


def _refusal(member: CommitteeMember, status: int, body: bytes) -> OverlayError:
    failure = decode_failure(body)
    if failure is None:
        return DirectoryUnavailable(f"{member.endpoint} answered {status}")
    return remote_failure(member.endpoint, failure)
