"""Telling the committee's members again and again where a relay or a destination is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import httpx

from troth.overlay.circuits.descriptors import PinnedAddress
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

Descriptor = SignedRelay | SignedDestination


async def publish(descriptor: Descriptor, membership: CommitteeMembership) -> dict[str, OverlayError | None]:
    """Post to every member at once; by endpoint, why a member refused it, or None where it was taken."""
    path = RELAY_PATH if isinstance(descriptor, SignedRelay) else DESTINATION_PATH
    body = encode_descriptor(descriptor)
    members = membership.members
    results = await asyncio.gather(*(_post(member, path, body) for member in members), return_exceptions=True)
    outcome: dict[str, OverlayError | None] = {}
    for member, result in zip(members, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, OverlayError):
            raise result
        outcome[member.endpoint] = result
    return outcome


def require_enough(outcome: dict[str, OverlayError | None]) -> int:
    """How many members took it; raises DescriptorRefused unless they are more than 2/3, with their reasons."""
    taken = sum(error is None for error in outcome.values())
    if taken < threshold(len(outcome)):
        reasons = "; ".join(f"{place}: {error.what}" for place, error in outcome.items() if error is not None)
        raise DescriptorRefused(
            f"{taken} of {len(outcome)} members took the descriptor: it will not be listed",
            reasons,
            "See each member's reason; mostly its own connection to the published address failed.",
        )
    return taken


async def publish_destination(
    secret: bytes,
    identity: TlsIdentity,
    place: PinnedAddress,
    membership: CommitteeMembership,
    *,
    seal_key: bytes,
    kind: str,
) -> int:
    """Publish a destination once; how many members took it. Raises an OverlayError if they are too few.

    Args:
        secret: the operator's secp256k1 key (`Operator.secret`); on chain it must be bonded as `kind`.
        identity: the TLS identity that answers at `place`.
        seal_key: 32 bytes, X25519, to which clients seal.
        kind: "scheduler" or "node".
    """
    signer = Signer(secret, identity, membership.domain)
    return require_enough(await publish(signer.destination(place, seal_key, kind, int(time.time())), membership))


async def keep_publishing(
    once: Callable[[], Awaitable[int]], again: float = AGAIN_SECONDS, retry: float = RETRY_SECONDS
) -> None:
    """Call `once` for ever: every `again` seconds while it succeeds, after `retry` when it failed."""
    while True:
        try:
            log.info("published to %d members", await once())
            pause = again
        except Exception as error:  # noqa: BLE001 - a relay outlives whatever a member or a chain node sends
            log.warning("not published: %s", error)
            pause = min(retry, again)
        await asyncio.sleep(pause)


async def _post(member: CommitteeMember, path: str, body: bytes) -> None:
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(PUBLISH_SECONDS),
                pinned_client(member.endpoint, member.tls_key_hash, PUBLISH_SECONDS) as client,
                client.stream("POST", path, content=body) as response,
            ):
                if response.status_code == 200:
                    return
                raise _refusal(member, response.status_code, await _start_of(response))
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
