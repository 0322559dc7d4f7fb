"""What a leader proposes: descriptors and the list before. The list itself follows from them, the same for everybody.

[version 1, valid_after, previous signed list or nothing, relay descriptors, destination descriptors]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from troth.committee.errors import RequestRefused
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.codec import MAXIMUM_DESTINATIONS, MAXIMUM_RELAYS
from troth.overlay.directory.descriptors import LARGEST_DESCRIPTOR, SignedDestination, SignedRelay
from troth.overlay.directory.listing import ListedDestination, ListedRelay, Listing
from troth.overlay.directory.signing import LARGEST_SIGNED
from troth.protocol.types import Address

VERSION = 1
LARGEST_PROPOSAL = LARGEST_SIGNED + 4 * 2**20

_Descriptor = Annotated[bytes, Meta(max_length=LARGEST_DESCRIPTOR)]


class Proposal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes of descriptors are those that their operators posted; `previous` is empty for the first list."""

    version: int
    valid_after: Annotated[int, Meta(ge=0, le=2**53)]
    previous: Annotated[bytes, Meta(max_length=LARGEST_SIGNED)]
    relays: Annotated[list[_Descriptor], Meta(max_length=MAXIMUM_RELAYS)]
    destinations: Annotated[list[_Descriptor], Meta(max_length=MAXIMUM_DESTINATIONS)]


@dataclass(frozen=True, slots=True)
class CheckedRelay:
    """A descriptor whose signatures are right, and whose operator they name."""

    descriptor: SignedRelay
    operator: Address
    data: bytes

    @property
    def name(self) -> bytes:
        """32 bytes."""
        return self.descriptor.tls_key_hash

    @property
    def relay(self) -> RelayDescriptor:
        """The relay as circuits know it."""
        one = self.descriptor
        return RelayDescriptor(PinnedAddress(one.host, one.port, one.tls_key_hash), one.handshake_key, self.operator)


@dataclass(frozen=True, slots=True)
class CheckedDestination:
    """The same of a destination."""

    descriptor: SignedDestination
    operator: Address
    data: bytes

    @property
    def name(self) -> bytes:
        """32 bytes."""
        return self.descriptor.tls_key_hash

    @property
    def place(self) -> PinnedAddress:
        """Where it listens."""
        return PinnedAddress(self.descriptor.host, self.descriptor.port, self.descriptor.tls_key_hash)


Checked = CheckedRelay | CheckedDestination


@dataclass(frozen=True, slots=True)
class Entries:
    """What a list can be made of."""

    relays: tuple[CheckedRelay, ...]
    destinations: tuple[CheckedDestination, ...]

    def only(self, names: Collection[bytes]) -> Entries:
        """Those with these names."""
        return Entries(
            tuple(one for one in self.relays if one.name in names),
            tuple(one for one in self.destinations if one.name in names),
        )

    def names(self) -> frozenset[bytes]:
        """All of them."""
        return frozenset(one.name for one in self.relays) | frozenset(one.name for one in self.destinations)

    def proposal(self, valid_after: int, previous: bytes) -> Proposal:
        """These as a proposal."""
        relays, destinations = [one.data for one in self.relays], [one.data for one in self.destinations]
        return Proposal(VERSION, valid_after, previous, relays, destinations)


def encode_proposal(proposal: Proposal) -> bytes:
    """The bytes of a proposal."""
    return msgspec.msgpack.encode(proposal)


def decode_proposal(data: bytes) -> Proposal:
    """The proposal in these bytes, nothing in it checked; raises RequestRefused."""
    if len(data) > LARGEST_PROPOSAL:
        raise RequestRefused(f"A proposal has at most {LARGEST_PROPOSAL} bytes", len(data))
    try:
        proposal = msgspec.msgpack.decode(data, type=Proposal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused("The bytes are no proposal", error) from error
    if proposal.version != VERSION:
        raise RequestRefused(f"The proposal has version {proposal.version}, this is for {VERSION}")
    return proposal


def listing_of(entries: Entries, valid_after: int, valid_until: int, previous: Listing | None) -> Listing:
    """The list that these entries make. A relay keeps its age from the list before, and else begins now."""
    known = {} if previous is None else {(one.relay.name, one.relay.operator): one.since for one in previous.relays}
    relays = (
        ListedRelay(
            one.relay,
            one.descriptor.region,
            one.descriptor.bandwidth,
            known.get((one.name, one.operator), valid_after),
        )
        for one in _ordered(entries.relays)
    )
    destinations = (
        ListedDestination(
            one.place,
            one.descriptor.seal_key,
            one.operator,
            one.descriptor.kind,
            one.descriptor.issued,
            one.descriptor.signature,
            one.descriptor.attested,
        )
        for one in sorted(entries.destinations, key=lambda one: one.name)
    )
    return Listing(valid_after, valid_until, tuple(relays), tuple(destinations))


def _ordered(relays: Iterable[CheckedRelay]) -> list[CheckedRelay]:
    return sorted(relays, key=lambda one: one.name)
