"""One member: what it holds, which lists it signs, which it serves, and what it counts for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge

from troth.committee.directory.admission import DescriptorAdmission, check
from troth.committee.directory.proposal import (
    Checked,
    CheckedDestination,
    CheckedRelay,
    Entries,
    Proposal,
    encode_proposal,
    listing_of,
)
from troth.committee.directory.schedule import Schedule
from troth.committee.directory.store import MemberStore
from troth.committee.errors import EntryRefused, Full, NotInCommittee, ProposalRefused
from troth.overlay.directory.codec import decode_listing, encode_listing
from troth.overlay.directory.errors import DirectoryError, ListStale
from troth.overlay.directory.listing import CommitteeMembership, Listing
from troth.overlay.directory.signing import (
    SignedListing,
    decode_signed,
    encode_signed,
    of_members,
    require_signed,
    sign_listing,
)
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import address_of
from troth.protocol.types import Address

log = logging.getLogger(__name__)
SHORTEST_CHECK, LONGEST_CHECK = 2.0, 30.0
"""Seconds: at most half of what the leader waits for an opinion."""


class MemberMetrics:
    """One registry per member, so that several in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.relays = Gauge("troth_committee_relays", "Relays in the newest list.", registry=self.registry)
        self.destinations = Gauge("troth_committee_destinations", "Destinations in it.", registry=self.registry)
        self.valid_until = Gauge("troth_committee_valid_until", "Unix time of its end.", registry=self.registry)
        self.signed = Counter("troth_committee_signed", "Lists signed by this member.", registry=self.registry)
        self.led = Counter("troth_committee_led", "Slots led by this member.", ["outcome"], registry=self.registry)
        self.refused = Counter("troth_committee_refused", "Entries refused.", ["way"], registry=self.registry)
        self.taken = Counter("troth_committee_taken", "Descriptors taken.", ["kind"], registry=self.registry)


@dataclass(frozen=True, slots=True)
class Newest:
    """The last signed list: as bytes, and read."""

    signed: SignedListing
    listing: Listing


@dataclass(eq=False)
class Member:
    """State and rules; all calls from one event loop.

    Args:
        secret: the operator's secp256k1 key.
        membership: the committee on chain, replaced when it changes.
    """

    secret: bytes = field(repr=False)
    membership: CommitteeMembership
    schedule: Schedule
    store: MemberStore
    admission: DescriptorAdmission
    metrics: MemberMetrics
    clock: Callable[[], float] = time.time
    newest: Newest | None = None

    def __post_init__(self) -> None:
        self.operator: Address = address_of(self.secret)
        self._signing = asyncio.Lock()
        self._served: tuple[bytes, CommitteeMembership, bytes] | None = None
        kept = self.store.newest_list()
        if kept is not None:
            signed = decode_signed(kept)
            # Our own file: it was checked when it came, perhaps under other members.
            self.newest = Newest(signed, decode_listing(signed.content))

    def require_membership(self) -> None:
        """Raise NotInCommittee unless this operator is a member."""
        if self.membership.member(self.operator) is None:
            raise NotInCommittee("This operator is no member", self.operator, "See: troth committee doctor")

    # -- lists -----------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> bool:
        """Keep a signed list if it is newer than ours; raises a DirectoryError if it is not to be believed."""
        signed = decode_signed(data)
        if self.newest is not None and signed.digest == self.newest.signed.digest:
            return False
        listing = require_signed(signed, self.membership.operators, self.membership.domain)
        if self.newest is not None and listing.valid_after <= self.newest.listing.valid_after:
            return False
        if listing.valid_after > self.clock() + self.schedule.skew:
            raise ProposalRefused("The list is from the future", listing.valid_after, "Set the clocks.")
        self.store.keep_list(listing.valid_after, data)
        self.newest = Newest(signed, listing)
        self.metrics.relays.set(len(listing.relays))
        self.metrics.destinations.set(len(listing.destinations))
        self.metrics.valid_until.set(listing.valid_until)
        log.info(
            "list of %d: %d relays, %d destinations",
            listing.valid_after,
            len(listing.relays),
            len(listing.destinations),
        )
        return True

    def served(self) -> tuple[bytes, str]:
        """What clients get, and its digest; raises ListStale when there is none that holds.

        Signatures of members who left meanwhile are taken off, so that the rest still counts if it is enough.
        """
        if self.newest is None or self.clock() >= self.newest.listing.valid_until:
            raise ListStale("This member has no list that holds", remedy="Ask another member.")
        # Made once for each list and membership: anybody may ask, as often as he likes.
        if self._served is None or self._served[:2] != (self.newest.signed.digest, self.membership):
            signed = of_members(self.newest.signed, self.membership.operators, self.membership.domain)
            self._served = self.newest.signed.digest, self.membership, encode_signed(signed)
        return self._served[2], self._served[0].hex()

    # -- opinions and signatures -----------------------------------------------------------------------------------

    async def opinion(self, proposal: Proposal) -> frozenset[bytes]:
        """Names of the entries that this member would list; raises ProposalRefused."""
        return (await self.acceptable(await self._entries(proposal))).names()

    async def acceptable(self, entries: Entries) -> Entries:
        """Those entries that pass every check now; what is not checked within a fifth of the slot does not."""
        everything: Sequence[Checked] = (*entries.relays, *entries.destinations)
        if not everything:
            return entries
        checks = {asyncio.create_task(self._is_acceptable(entry)): entry.name for entry in everything}
        try:
            done, _ = await asyncio.wait(
                checks, timeout=min(LONGEST_CHECK, max(SHORTEST_CHECK, self.schedule.period / 5))
            )
        finally:
            # Also where who asked has left: thousands of probes would go on for nobody.
            for check_of_one in checks:
                check_of_one.cancel()
        return entries.only({checks[one] for one in done if one.result()})

    async def sign(self, proposal: Proposal) -> tuple[bytes, bytes]:
        """(content of the list that follows, our signature over it); raises ProposalRefused with what is wrong."""
        self.require_membership()
        entries = await self._entries(proposal)
        accepted = (await self.acceptable(entries)).names()
        for name in entries.names() - accepted:
            raise ProposalRefused("The proposal has an entry that this member does not accept", name.hex())
        async with self._signing:
            content = self._content(proposal, entries)
            digest = keccak256(content)
            # In another thread, since it waits for the disk; the lock keeps two proposals from racing here.
            await asyncio.to_thread(self.store.claim, proposal.valid_after, digest, encode_proposal(proposal))
        self.metrics.signed.inc()
        return content, sign_listing(content, self.membership.domain, self.secret)

    def _content(self, proposal: Proposal, entries: Entries) -> bytes:
        valid_until = proposal.valid_after + self.schedule.valid
        previous = self._previous(proposal)
        try:
            return encode_listing(listing_of(entries, proposal.valid_after, valid_until, previous))
        except DirectoryError as error:
            raise ProposalRefused(f"No list follows from the proposal: {error.what}", error.value) from error

    def _previous(self, proposal: Proposal) -> Listing | None:
        """The list from which ages are taken: the newest there is, so that nobody can age or rejuvenate a relay."""
        if proposal.previous:
            signed = decode_signed(proposal.previous)
            if self.newest is None or signed.digest != self.newest.signed.digest:
                # Only a newer one than ours is taken up; then it is ours.
                self.take(proposal.previous)
        newest = self.newest
        given = keccak256(decode_signed(proposal.previous).content) if proposal.previous else None
        if given != (None if newest is None else newest.signed.digest):
            seen = None if newest is None else newest.listing.valid_after
            raise ProposalRefused("The proposal does not follow the newest list", seen, "Fetch it: GET /v1/list")
        if newest is not None and newest.listing.valid_after >= proposal.valid_after:
            raise ProposalRefused("There is a list for this time, or a later one", newest.listing.valid_after)
        return None if newest is None else newest.listing

    async def _entries(self, proposal: Proposal) -> Entries:
        if not self.schedule.is_current(proposal.valid_after, self.clock()):
            raise ProposalRefused("The proposal is for another slot", proposal.valid_after, "Set the clocks.")
        try:
            entries = await asyncio.to_thread(self._checked, proposal)
            self.admission.require_bounds(entries)
        except (DirectoryError, Full) as error:
            raise ProposalRefused(f"The proposal has a wrong entry: {error.what}", error.value) from error
        return entries

    def _checked(self, proposal: Proposal) -> Entries:
        domain = self.membership.domain
        relays = [check(data, "relay", domain) for data in proposal.relays]
        destinations = [check(data, "destination", domain) for data in proposal.destinations]
        return Entries(
            tuple(one for one in relays if isinstance(one, CheckedRelay)),
            tuple(one for one in destinations if isinstance(one, CheckedDestination)),
        )

    async def _is_acceptable(self, entry: Checked) -> bool:
        try:
            await self.admission.require_acceptable(entry)
        except (EntryRefused, Full) as error:
            log.info("not listed: %s", error)
            self.metrics.refused.labels("proposed").inc()
            return False
        except Exception:
            # A stranger's entry must not keep all others out of the list, whatever it meets here.
            log.exception("an entry cannot be checked, and is not listed")
            return False
        return True

    def previous_data(self) -> bytes:
        """The newest list as it goes into a proposal."""
        return b"" if self.newest is None else encode_signed(self.newest.signed)

    def reasons(self) -> list[str]:
        """Why this member is not ready; empty when it is."""
        found = []
        if self.membership.member(self.operator) is None:
            found.append(f"{self.operator} is no member of {self.membership.domain.contract}")
        if self.newest is None or self.clock() >= self.newest.listing.valid_until:
            found.append("there is no list that holds")
        return found
