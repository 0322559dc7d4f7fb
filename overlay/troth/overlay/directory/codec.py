"""A list as bytes: msgpack arrays in one encoding only, so that everybody signs and hashes the same bytes.

    [version 2, valid_after, valid_until, relays, destinations]
    relay        [host, port, tls_key_hash, handshake_key, operator 20, region, bandwidth, since]
    destination  [host, port, tls_key_hash, seal_key, operator 20, kind, issued, signature, measurement, until]

Both are in ascending order of their TLS key hashes, each hash once. Hosts are IP addresses as `ipaddress` writes them:
a name could lead each client elsewhere. A destination that is not attested has an empty measurement, until 0.
"""

from __future__ import annotations

import ipaddress
import re
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from troth.overlay.attestation.errors import EvidenceMalformed
from troth.overlay.attestation.measurement import LONGEST, Attested, parse_measurement
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.errors import ListMalformed
from troth.overlay.directory.listing import ListedDestination, ListedRelay, Listing
from troth.protocol.errors import ProtocolError
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import address_from_bytes, address_to_bytes

VERSION = 2
MAXIMUM_RELAYS: Final = 4096
MAXIMUM_DESTINATIONS: Final = 1024
LARGEST_LIST = 2 * 2**20
"""Bytes: more than a list of the most entries takes."""
LONGEST_VALIDITY = 24 * 3600
"""Seconds: a list that leaked from a committee long ago must not live on."""
KINDS = ("scheduler", "node")
REGION = re.compile(r"[a-z0-9-]{0,16}")

_Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Account = Annotated[bytes, Meta(min_length=20, max_length=20)]
_Host = Annotated[str, Meta(min_length=2, max_length=45)]
_Port = Annotated[int, Meta(ge=1, le=65_535)]
_Time = Annotated[int, Meta(ge=0, le=2**53)]
_Signature = Annotated[bytes, Meta(min_length=65, max_length=65)]


class _Array(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row of fixed length."""


class _RelayRow(_Array, frozen=True, array_like=True, forbid_unknown_fields=True):
    host: _Host
    port: _Port
    tls_key_hash: _Hash
    handshake_key: _Hash
    operator: _Account
    region: Annotated[str, Meta(max_length=16)]
    bandwidth: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    since: _Time


class _Destination(_Array, frozen=True, array_like=True, forbid_unknown_fields=True):
    host: _Host
    port: _Port
    tls_key_hash: _Hash
    seal_key: _Hash
    operator: _Account
    kind: str
    issued: _Time
    signature: _Signature
    measurement: Annotated[str, Meta(max_length=LONGEST)]
    until: _Time


class _Listing(_Array, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    valid_after: _Time
    valid_until: _Time
    relays: Annotated[list[_RelayRow], Meta(max_length=MAXIMUM_RELAYS)]
    destinations: Annotated[list[_Destination], Meta(max_length=MAXIMUM_DESTINATIONS)]


def encode_listing(listing: Listing) -> bytes:
    """The bytes of a list; raises ListMalformed where an entry cannot stand in one."""
    try:
        relays = [_relay(listed) for listed in listing.relays]
        destinations = [_destination(listed) for listed in listing.destinations]
    except ProtocolError as error:
        raise ListMalformed("An operator in the list is no address", error) from error
    wire = _Listing(VERSION, listing.valid_after, listing.valid_until, relays, destinations)
    content = msgspec.msgpack.encode(wire)
    decode_listing(content)
    return content


def decode_listing(content: bytes) -> Listing:
    """The list in these bytes; raises ListMalformed for anything but its one encoding."""
    if len(content) > LARGEST_LIST:
        raise ListMalformed(f"A list has at most {LARGEST_LIST} bytes", len(content))
    try:
        wire = msgspec.msgpack.decode(content, type=prepared(_Listing))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ListMalformed("The bytes are no list", error) from error
    if wire.version != VERSION:
        raise ListMalformed(f"The list has version {wire.version}, this is for {VERSION}", remedy="Upgrade the older.")
    if msgspec.msgpack.encode(wire) != content:
        raise ListMalformed("The list is not in its one encoding", len(content))
    _require_rules(wire)
    return Listing(
        wire.valid_after,
        wire.valid_until,
        tuple(_listed_relay(relay) for relay in wire.relays),
        tuple(_listed_destination(destination) for destination in wire.destinations),
    )


def attested_of(measurement: str, until: int) -> Attested | None:
    """What the two fields of a destination say; raises EvidenceMalformed where one stands without the other."""
    if bool(measurement) != bool(until):
        raise EvidenceMalformed("A measurement stands beside its end, or neither does", f"{measurement!r}, {until}")
    return Attested(parse_measurement(measurement), until) if measurement else None


def fields_of(attested: Attested | None) -> tuple[str, int]:
    """The same as two fields."""
    return ("", 0) if attested is None else (str(attested.measurement), attested.until)


def is_literal(host: str) -> bool:
    """Whether a host is an IP address in its one spelling, without a zone and not IPv4 written as IPv6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id is not None or address.ipv4_mapped is not None):
        return False
    return str(address) == host


def _require_rules(wire: _Listing) -> None:
    if not wire.valid_after < wire.valid_until <= wire.valid_after + LONGEST_VALIDITY:
        raise ListMalformed(
            f"A list is valid for 1 to {LONGEST_VALIDITY} seconds", f"{wire.valid_after} to {wire.valid_until}"
        )
    _require_order([relay.tls_key_hash for relay in wire.relays])
    _require_order([destination.tls_key_hash for destination in wire.destinations])
    hosts = {relay.host for relay in wire.relays} | {destination.host for destination in wire.destinations}
    for host in hosts:
        if not is_literal(host):
            raise ListMalformed("A host in a list is an IP address", host)
    for relay in wire.relays:
        if REGION.fullmatch(relay.region) is None or relay.since > wire.valid_after:
            raise ListMalformed("A relay has a short region and no age from the future", relay.tls_key_hash.hex())
    for destination in wire.destinations:
        if destination.kind not in KINDS:
            raise ListMalformed(f"A destination is one of {', '.join(KINDS)}", destination.kind)
        try:
            attested_of(destination.measurement, destination.until)
        except EvidenceMalformed as error:
            raise ListMalformed(error.what, error.value) from error


def _require_order(names: list[bytes]) -> None:
    if any(one >= other for one, other in pairwise(names)):
        raise ListMalformed("Entries stand in ascending order of their TLS key hashes, each once")


def _relay(listed: ListedRelay) -> _RelayRow:
    place, operator = listed.relay.place, address_to_bytes(listed.relay.operator)
    return _RelayRow(
        place.host,
        place.port,
        place.tls_key_hash,
        listed.relay.handshake_key,
        operator,
        listed.region,
        listed.bandwidth,
        listed.since,
    )


def _destination(listed: ListedDestination) -> _Destination:
    place, operator = listed.place, address_to_bytes(listed.operator)
    return _Destination(
        place.host,
        place.port,
        place.tls_key_hash,
        listed.seal_key,
        operator,
        listed.kind,
        listed.issued,
        listed.signature,
        *fields_of(listed.attested),
    )


def _listed_relay(wire: _RelayRow) -> ListedRelay:
    place = PinnedAddress(wire.host, wire.port, wire.tls_key_hash)
    relay = RelayDescriptor(place, wire.handshake_key, address_from_bytes(wire.operator))
    return ListedRelay(relay, wire.region, wire.bandwidth, wire.since)


def _listed_destination(wire: _Destination) -> ListedDestination:
    place = PinnedAddress(wire.host, wire.port, wire.tls_key_hash)
    operator = address_from_bytes(wire.operator)
    attested = attested_of(wire.measurement, wire.until)
    return ListedDestination(place, wire.seal_key, operator, wire.kind, wire.issued, wire.signature, attested)
