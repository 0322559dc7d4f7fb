"""What a directory list says, and whose signatures count under it.

Source: PlanetServe, section 3.1; docs/reference/directory.md has the format.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError
from troth.overlay.attestation.measurement import Attested
from troth.overlay.circuits.descriptors import Directory, PinnedAddress, RelayDescriptor
from troth.overlay.directory.errors import CommitteeUnknown
from troth.protocol import committee_calls
from troth.protocol.committee import MAXIMUM_MEMBERS, CommitteeMember
from troth.protocol.errors import ProtocolError
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class ListedRelay:
    """A relay, as the members agreed on it.

    Attributes:
        relay: place, handshake key, and the operator's address ("0x…").
        region: a short word that its operator chose, or empty.
        bandwidth: kilobytes a second that it offers.
        since: Unix time from which the directory has known it without a break.
    """

    relay: RelayDescriptor
    region: str
    bandwidth: int
    since: int


@dataclass(frozen=True, slots=True)
class ListedDestination:
    """A party that answers requests: a scheduler, later a model node.

    Attributes:
        place: its overlay entry; proxies deliver there.
        seal_key: X25519 key to which clients seal (HPKE), 32 bytes.
        operator: its operator's address on chain.
        kind: "scheduler" or "node".
        issued: Unix time at which the operator signed this.
        signature: 65 bytes of the operator over all of it (EIP-712), so that no member can swap the seal key.
        attested: what the members found that its machine runs; None for a party that shows nothing of its machine.
    """

    place: PinnedAddress
    seal_key: bytes
    operator: str
    kind: str
    issued: int
    signature: bytes
    attested: Attested | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One list. Valid from `valid_after` until before `valid_until`, Unix seconds."""

    valid_after: int
    valid_until: int
    relays: tuple[ListedRelay, ...]
    destinations: tuple[ListedDestination, ...]

    def directory(self) -> Directory:
        """Whom a relay may connect to under this list."""
        return Directory.of(
            tuple(listed.relay for listed in self.relays), tuple(listed.place for listed in self.destinations)
        )


@dataclass(frozen=True, slots=True)
class CommitteeMembership:
    """The members of one committee, in ascending order of operators."""

    domain: Domain
    members: tuple[CommitteeMember, ...]

    @classmethod
    def of(cls, domain: Domain, members: tuple[CommitteeMember, ...]) -> CommitteeMembership:
        """A committee of these; raises CommitteeUnknown if there are none or too many."""
        if not 0 < len(members) <= MAXIMUM_MEMBERS:
            raise CommitteeUnknown("The committee has no members", domain.contract, "Check the contract's address.")
        return cls(domain, tuple(sorted(members, key=lambda member: member.operator.lower())))

    @property
    def operators(self) -> frozenset[Address]:
        """Who may sign."""
        return frozenset(member.operator for member in self.members)

    def member(self, operator: Address) -> CommitteeMember | None:
        """The member of this operator, if it is one."""
        return next((member for member in self.members if member.operator == operator), None)


async def read_membership(rpc: str, contract: Address) -> CommitteeMembership:
    """Ask the chain; raises CommitteeUnknown."""
    try:
        async with await Chain.connect(rpc, contract) as chain:
            return await membership_on(chain)
    except ChainError as error:
        raise CommitteeUnknown(f"The committee cannot be read: {error.what}", error.value, error.remedy) from error


async def membership_on(chain: Chain) -> CommitteeMembership:
    """The same over an open connection to the Committee contract."""
    try:
        return CommitteeMembership.of(chain.domain, await chain.read(committee_calls.members()))
    except (ChainError, ProtocolError) as error:
        raise CommitteeUnknown(f"The committee cannot be read: {error.what}", error.value, error.remedy) from error
