"""Whose signatures count: the committee's members, read from its contract."""

from __future__ import annotations

from dataclasses import dataclass

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError
from troth.overlay.directory.errors import CommitteeUnknown
from troth.protocol import committee_calls
from troth.protocol.committee import MAXIMUM_MEMBERS, Member
from troth.protocol.errors import ProtocolError
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of one committee, in ascending order of operators."""

    domain: Domain
    members: tuple[Member, ...]

    @classmethod
    def of(cls, domain: Domain, members: tuple[Member, ...]) -> Membership:
        """A committee of these; raises CommitteeUnknown if there are none or too many."""
        if not 0 < len(members) <= MAXIMUM_MEMBERS:
            raise CommitteeUnknown("The committee has no members", domain.contract, "Check the contract's address.")
        return cls(domain, tuple(sorted(members, key=lambda member: member.operator.lower())))

    @property
    def operators(self) -> frozenset[Address]:
        """Who may sign."""
        return frozenset(member.operator for member in self.members)

    def member(self, operator: Address) -> Member | None:
        """The member of this operator, if it is one."""
        return next((member for member in self.members if member.operator == operator), None)


async def read_membership(rpc: str, contract: Address) -> Membership:
    """Ask the chain; raises CommitteeUnknown."""
    try:
        async with await Chain.connect(rpc, contract) as chain:
            return await membership_on(chain)
    except ChainError as error:
        raise CommitteeUnknown(f"The committee cannot be read: {error.what}", error.value, error.remedy) from error


async def membership_on(chain: Chain) -> Membership:
    """The same over an open connection to the Committee contract."""
    try:
        return Membership.of(chain.domain, await chain.read(committee_calls.members()))
    except (ChainError, ProtocolError) as error:
        raise CommitteeUnknown(f"The committee cannot be read: {error.what}", error.value, error.remedy) from error
