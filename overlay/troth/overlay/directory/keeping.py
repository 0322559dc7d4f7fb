"""The newest list that one party holds: never an older one again, and on disk for the next start.

The file holds the committee's members as well, so that a list is checked and used without chain and members while it
lasts. It is as trusted as the configuration beside it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from troth.chain.new_files import replace_file
from troth.overlay.directory.descriptors import require_own_signature
from troth.overlay.directory.errors import DescriptorRefused, ListRefused, ListRolledBack
from troth.overlay.directory.listing import CommitteeMembership, ListedDestination, Listing
from troth.overlay.directory.signing import LARGEST_SIGNED, SignedListing, decode_signed, encode_signed, verify
from troth.protocol.committee import MAXIMUM_MEMBERS, CommitteeMember
from troth.protocol.errors import ProtocolError
from troth.protocol.struct_kinds import prepared
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32, to_address

log = logging.getLogger(__name__)

VERSION = 1


class _Member(msgspec.Struct, frozen=True, array_like=True):
    operator: str
    tls_key_hash: Annotated[bytes, Meta(min_length=32, max_length=32)]
    endpoint: str


class _DirectoryFile(msgspec.Struct, frozen=True, array_like=True):
    version: int
    chain_id: int
    contract: str
    members: Annotated[list[_Member], Meta(max_length=MAXIMUM_MEMBERS)]
    signed: Annotated[bytes, Meta(max_length=LARGEST_SIGNED)]


class DirectoryKeeper:
    """What one client or relay believes.

    Args:
        path: where list and members are kept; None keeps them in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.membership: CommitteeMembership | None = None
        self.signed: SignedListing | None = None
        self.listing: Listing | None = None

    def load(self, contract: str, now: float) -> None:
        """Take up what the last process left; a file that cannot be used is left out."""
        if self._path is None or not self._path.exists():
            return
        try:
            file = msgspec.msgpack.decode(self._path.read_bytes(), type=prepared(_DirectoryFile))
            if file.version != VERSION or file.contract != contract:
                return
            members = tuple(
                CommitteeMember(to_address(one.operator), Hash32(one.tls_key_hash), one.endpoint)
                for one in file.members
            )
            membership = CommitteeMembership.of(Domain(file.chain_id, to_address(file.contract)), members)
            signed = decode_signed(file.signed)
            self.listing = _own_words(verify(signed, membership.operators, membership.domain, now), membership.domain)
            self.membership, self.signed = membership, signed
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, ListRefused, ProtocolError) as error:
            log.info("the kept list cannot be used: %s", error)

    def offer(self, data: bytes, now: float) -> Listing:
        """Take a list up; raises a ListRefused, and then the one before stays."""
        assert self.membership is not None, "the members come before their lists"
        signed = decode_signed(data)
        listing = verify(signed, self.membership.operators, self.membership.domain, now)
        if self.listing is not None and self.signed is not None:
            if signed.digest == self.signed.digest:
                return self.listing
            if listing.valid_after <= self.listing.valid_after:
                raise ListRolledBack(
                    f"The list is of {listing.valid_after}, a later one is held", self.listing.valid_after
                )
        self.listing, self.signed = _own_words(listing, self.membership.domain), signed
        self._save()
        return self.listing

    def current(self, now: float) -> Listing | None:
        """The list, while it holds."""
        listing = self.listing
        return listing if listing is not None and listing.valid_after <= now < listing.valid_until else None

    def _save(self) -> None:
        if self._path is None or self.membership is None or self.signed is None:
            return
        domain = self.membership.domain
        members = [_Member(one.operator, one.tls_key_hash, one.endpoint) for one in self.membership.members]
        file = _DirectoryFile(VERSION, domain.chain_id, domain.contract, members, encode_signed(self.signed))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._path, msgspec.msgpack.encode(file))
        except OSError as error:
            log.warning("the list could not be kept: %s", error)


def _own_words(listing: Listing, domain: Domain) -> Listing:
    """The list less the destinations that their own operators did not sign."""

    def is_own(listed: ListedDestination) -> bool:
        try:
            require_own_signature(listed, domain)
        except DescriptorRefused as error:
            log.warning("a destination is left out: %s", error)
            return False
        return True

    destinations = tuple(filter(is_own, listing.destinations))
    return Listing(listing.valid_after, listing.valid_until, listing.relays, destinations)
