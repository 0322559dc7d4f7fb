"""Signatures under lists and descriptors, and the checks before a list is believed.

Everything is EIP-712 in the domain of the Committee contract: a signature counts on one chain for one committee.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from troth.overlay.directory.codec import LARGEST_LIST, decode_listing
from troth.overlay.directory.errors import (
    ListForged,
    ListMalformed,
    ListNotYetValid,
    ListShortSigned,
    ListStale,
    SignedTwice,
    SignerUnknown,
)
from troth.overlay.directory.listing import Listing
from troth.protocol import typed_data
from troth.protocol.committee import MAXIMUM_MEMBERS, threshold
from troth.protocol.errors import InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.struct_kinds import prepared
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, Uint64

VERSION = 1
LARGEST_SIGNED = LARGEST_LIST + 4096


@dataclass(frozen=True, slots=True)
class DirectoryList:
    """EIP-712 message of a member: this list, named by keccak256 of its bytes, holds from then until then."""

    listing: Hash32
    valid_after: Uint64
    valid_until: Uint64


@dataclass(frozen=True, slots=True)
class SignedListing:
    """A list's bytes and the members' signatures, in ascending order of signers."""

    content: bytes
    signatures: tuple[bytes, ...]

    @property
    def digest(self) -> Hash32:
        """keccak256 of the content, by which lists are told apart."""
        return Hash32(keccak256(self.content))


class _WireListing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    content: Annotated[bytes, Meta(max_length=LARGEST_LIST)]
    signatures: Annotated[list[Annotated[bytes, Meta(min_length=65, max_length=65)]], Meta(max_length=MAXIMUM_MEMBERS)]


def encode_signed(signed: SignedListing) -> bytes:
    """What a member serves."""
    return msgspec.msgpack.encode(_WireListing(VERSION, signed.content, list(signed.signatures)))


def decode_signed(data: bytes) -> SignedListing:
    """Content and signatures, neither of them checked; raises ListMalformed."""
    if len(data) > LARGEST_SIGNED:
        raise ListMalformed(f"A signed list has at most {LARGEST_SIGNED} bytes", len(data))
    try:
        wire = msgspec.msgpack.decode(data, type=prepared(_WireListing))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ListMalformed("The bytes are no signed list", error) from error
    if wire.version != VERSION or msgspec.msgpack.encode(wire) != data:
        raise ListMalformed("The signed list is not in its one encoding, or of another version", wire.version)
    return SignedListing(wire.content, tuple(wire.signatures))


def list_message(content: bytes) -> DirectoryList:
    """What a member signs for a list's bytes; raises ListMalformed."""
    listing = decode_listing(content)
    return DirectoryList(Hash32(keccak256(content)), listing.valid_after, listing.valid_until)


def sign_listing(content: bytes, domain: Domain, secret: bytes) -> bytes:
    """One member's signature, 65 bytes."""
    return typed_data.sign(list_message(content), domain, secret)


def assemble(content: bytes, by_signer: dict[Address, bytes]) -> SignedListing:
    """The list with its signatures in their order."""
    ordered = sorted(by_signer, key=lambda signer: signer.lower())
    return SignedListing(content, tuple(by_signer[signer] for signer in ordered))


def signers(signed: SignedListing, domain: Domain) -> list[Address]:
    """Whose keys made the signatures, each in its place; raises ListForged for one that no key can have made."""
    message = list_message(signed.content)
    found: list[Address] = []
    for signature in signed.signatures:
        try:
            found.append(typed_data.recover(message, domain, signature))
        except InvalidSignature as error:
            raise ListForged("The list carries a signature that no key can have made", error) from error
    return found


def of_members(signed: SignedListing, members: Collection[Address], domain: Domain) -> SignedListing:
    """The list less the signatures of those who are no members (any more)."""
    pairs = zip(signed.signatures, signers(signed, domain), strict=True)
    return SignedListing(signed.content, tuple(signature for signature, signer in pairs if signer in members))


def require_signed(signed: SignedListing, members: Collection[Address], domain: Domain) -> Listing:
    """The list, if more than 2/3 of the members signed it, whatever the time; raises a ListRefused."""
    found = signers(signed, domain)
    for signer in found:
        if signer not in members:
            raise SignerUnknown("The list was signed by somebody who is no member, or as another list", signer)
    for one, other in pairwise(found):
        if one.lower() >= other.lower():
            raise SignedTwice("A member counts once, and signatures stand in the order of their signers", other)
    needed = threshold(len(members))
    if len(found) < needed:
        raise ListShortSigned(f"{needed} of {len(members)} members must sign a list", len(found))
    return decode_listing(signed.content)


def verify(signed: SignedListing, members: Collection[Address], domain: Domain, now: float) -> Listing:
    """The list, if it is to be believed now; raises a ListRefused.

    Args:
        members: operator addresses of the committee, as the chain has them.
        now: Unix time.
    """
    listing = require_signed(signed, members, domain)
    if now < listing.valid_after:
        raise ListNotYetValid(
            f"The list holds in {listing.valid_after - now:.0f} s only", remedy="Set this machine's clock."
        )
    if now >= listing.valid_until:
        raise ListStale(
            f"The list ended {now - listing.valid_until:.0f} s ago", remedy="Ask another member; check the clock."
        )
    return listing
