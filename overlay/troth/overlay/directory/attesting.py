"""Showing every member of a committee what a machine runs, and what they agree on.

GET  /v1/nonce          32 bytes, for one evidence
POST /v1/attestations   [nonce, tls_key_hash, seal_key, operator, kind, evidence]; the answer: measurement, until
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Protocol

import httpx
import msgspec
from msgspec import Meta

from troth.overlay.attestation.binding import NONCE_BYTES, Binding
from troth.overlay.attestation.errors import AttestationError, EvidenceMalformed
from troth.overlay.attestation.evidence import LARGEST_EVIDENCE, MachineEvidence, decode_evidence, encode_evidence
from troth.overlay.attestation.measurement import LONGEST, Attested, parse_measurement
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import CommitteeMember, threshold
from troth.protocol.struct_kinds import prepared
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, address_from_bytes, address_to_bytes
from troth.transport.errors import OverlayError, decode_failure, remote_failure
from troth.transport.https import naming_errors, pinned_client

NONCE_PATH, ATTESTATION_PATH = "/v1/nonce", "/v1/attestations"
LARGEST_SHOWING = LARGEST_EVIDENCE + 1024
SHOW_SECONDS = 120.0
"""For one member, the machine's own time included: devices take seconds for a report."""
ANSWER_BYTES = 8192

_Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]


class _ShownRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row of fixed length."""


class _ShownWire(_ShownRow, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    tls_key_hash: _Hash
    seal_key: _Hash
    operator: Annotated[bytes, Meta(min_length=20, max_length=20)]
    kind: Annotated[str, Meta(max_length=16)]
    evidence: Annotated[bytes, Meta(max_length=LARGEST_EVIDENCE)]


class FoundMeasurement(msgspec.Struct, frozen=True):
    """A member's answer: what it found, and until when it vouches for it (Unix seconds)."""

    measurement: Annotated[str, Meta(max_length=LONGEST)]
    until: Annotated[int, Meta(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class ShownMachine:
    """Evidence of one party for one nonce."""

    nonce: bytes
    tls_key_hash: bytes
    seal_key: bytes
    operator_address: Address
    kind: str
    evidence: MachineEvidence

    def binding(self, domain: Domain) -> Binding:
        """What its quotes must speak for."""
        return Binding(self.nonce, self.tls_key_hash, self.seal_key, self.operator_address, self.kind, domain)


class Attester(Protocol):
    """A machine that can speak for itself."""

    async def evidence(self, binding: Binding) -> MachineEvidence:
        """What its hardware signs over a binding, with its vendor's words; raises an AttestationError."""


def encode_showing(showing: ShownMachine) -> bytes:
    """The bytes of a showing."""
    operator, evidence = address_to_bytes(showing.operator_address), encode_evidence(showing.evidence)
    keys = (showing.nonce, showing.tls_key_hash, showing.seal_key)
    return msgspec.msgpack.encode(_ShownWire(*keys, operator, showing.kind, evidence))


def decode_showing(data: bytes) -> ShownMachine:
    """The showing in these bytes, nothing in it checked; raises EvidenceMalformed."""
    if len(data) > LARGEST_SHOWING:
        raise EvidenceMalformed(f"Evidence has at most {LARGEST_SHOWING} bytes", len(data))
    try:
        wire = msgspec.msgpack.decode(data, type=prepared(_ShownWire))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceMalformed("The bytes show no machine", str(error)[:200]) from error
    operator, evidence = address_from_bytes(wire.operator), decode_evidence(wire.evidence)
    return ShownMachine(wire.nonce, wire.tls_key_hash, wire.seal_key, operator, wire.kind, evidence)


@dataclass(frozen=True, slots=True)
class AttestedParty:
    """Whom a machine answers as: the keys that its evidence is bound to."""

    tls_key_hash: bytes
    seal_key: bytes
    operator: Address
    kind: str


async def attest(attester: Attester, party: AttestedParty, membership: CommitteeMembership) -> Attested:
    """Show the machine to every member; what more than 2/3 of them found, until the first of them ends.

    Raises AttestationError, with each member's reason, where they are too few or found different things.
    """
    members = membership.members
    shown = (_show(attester, party, member, membership.domain) for member in members)
    results = await asyncio.gather(*shown, return_exceptions=True)
    found = [one for one in results if isinstance(one, Attested)]
    for unknown in results:
        if isinstance(unknown, BaseException) and not isinstance(unknown, OverlayError):
            raise unknown
    counted = Counter(one.measurement for one in found).most_common(1)
    if not counted or counted[0][1] < threshold(len(members)):
        named = zip(members, results, strict=True)
        reasons = "; ".join(f"{one.endpoint}: {why}" for one, why in named if isinstance(why, OverlayError))
        what = f"{counted[0][1] if counted else 0} of {len(members)} members vouch for this machine"
        raise AttestationError(what, reasons, "See each member's reason; without them no --confidential order comes.")
    measurement = counted[0][0]
    return Attested(measurement, min(one.until for one in found if one.measurement == measurement))


async def _show(attester: Attester, party: AttestedParty, member: CommitteeMember, domain: Domain) -> Attested:
    try:
        with naming_errors(member.endpoint):
            async with (
                asyncio.timeout(SHOW_SECONDS),
                pinned_client(member.endpoint, member.tls_key_hash, SHOW_SECONDS) as client,
            ):
                nonce = await _asked(client, member, "GET", NONCE_PATH)
                if len(nonce) != NONCE_BYTES:
                    raise DirectoryUnavailable(f"{member.endpoint} gives no nonce", len(nonce))
                keys = (party.tls_key_hash, party.seal_key, party.operator, party.kind)
                evidence = await attester.evidence(Binding(nonce, *keys, domain))
                body = encode_showing(ShownMachine(nonce, *keys, evidence))
                answer = msgspec.json.decode(
                    await _asked(client, member, "POST", ATTESTATION_PATH, body), type=FoundMeasurement
                )
                return Attested(parse_measurement(answer.measurement), answer.until)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DirectoryUnavailable(f"{member.endpoint} does not say what it found", str(error)[:200]) from error
    except (TimeoutError, httpx.HTTPError) as error:
        raise DirectoryUnavailable(f"{member.endpoint} did not answer", error) from error


async def _asked(
    client: httpx.AsyncClient, member: CommitteeMember, method: str, path: str, body: bytes = b""
) -> bytes:
    answer = bytearray()
    async with client.stream(method, path, content=body) as response:
        async for part in response.aiter_raw():
            answer += part
            if len(answer) > ANSWER_BYTES:
                raise DirectoryUnavailable(f"{member.endpoint} answers at length", len(answer))
    if response.status_code == 200:
        return bytes(answer)
    failure = decode_failure(bytes(answer))
    if failure is None:
        raise DirectoryUnavailable(f"{member.endpoint} answered {response.status_code}")
    raise remote_failure(member.endpoint, failure)
