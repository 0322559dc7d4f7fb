"""What stands beside a market, audited again and again: contribution credits (M23), tickets (M24, M25), reputation.

`troth audit watch` and the explorer look at these contracts with each look at the market, where they are named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from troth.audit import credits, tickets
from troth.audit.checks import CREDITED, TICKETS_MONEY, TICKETS_SIGNED
from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.audit.running import again, at_node
from troth.audit.subject import AuditSubject
from troth.chain.organisations import OrganisationsReading, read_organisations
from troth.chain.reputation_reading import Known, ReputationReading, read_reputation
from troth.chain.tickets import TicketsContract, TicketsReading, read_tickets
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.reputation import ReputationPlace
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class ReadServices:
    """What one look read; None where no such contract is named."""

    tickets: TicketsReading | None
    organisations: OrganisationsReading | None
    reports: tuple[CheckReport, ...]
    reputation: ReputationReading | None = None


@dataclass(frozen=True, slots=True)
class AuditedServices:
    """The contracts beside one market; each may be left out."""

    rpc: str
    tickets: TicketsContract | None = None
    organisations: OrganisationsPlace | None = None
    reputation: ReputationPlace | None = None
    _known: Known = field(default_factory=dict, repr=False, compare=False)

    async def read(self, subject: AuditSubject) -> ReadServices:
        """Read and check them up to the subject's block; raises ChainError."""
        reports = list[CheckReport]()
        sold = hosted = rated = None
        registry, market = subject.evidence.place.contracts.registry, subject.history.state
        if self.organisations is not None:
            hosted = await read_organisations(self.rpc, self.organisations, market, registry, block=subject.block)
            found = (*credits.examine(hosted), CheckResult(None, tuple(standing(hosted))))
            reports.append(CheckReport(*CREDITED, found))
        if self.tickets is not None:
            sold = await read_tickets(self.rpc, self.tickets, subject.history.state, block=subject.block)
            calls = await tickets.calls_of(self.rpc, sold)
            reports += await asyncio.to_thread(tickets.reports, sold, calls)
        if self.reputation is not None:
            place = self.reputation
            rated = await read_reputation(self.rpc, place, registry, block=subject.block, known=self._known)
        return ReadServices(sold, hosted, tuple(reports), rated)

    def again(self, finding: Finding, factory: Address) -> str:
        """The command that shows a finding again."""
        known = {
            CREDITED[0]: ("credits", self.organisations),
            TICKETS_MONEY[0]: ("tickets", self.tickets),
            TICKETS_SIGNED[0]: ("tickets", self.tickets),
        }
        command, place = known.get(finding.check, ("", None))
        if place is None:
            return again(finding, factory, self.rpc)
        return f"troth audit {command} {place.contract} --factory {factory} {at_node(self.rpc)}"


def standing(reading: OrganisationsReading) -> Iterator[Finding]:
    """What organisations have and have hosted, for whoever watches: no violation, and shown once for each."""
    number, state = CREDITED[0], reading.state
    for one in state.deployments.values():
        if one.reserve:
            what = f"Deployment {one.number} pays {one.replicas} machines from epoch {one.first} to {one.end}"
            hosted = (("hosted layers", str(one.hosted)), ("set aside", str(one.reserve)))
            yield Finding(number, FindingKind.OBSERVED, what, party=one.owner, role="owner", evidence=hosted)
    for owner, balance in sorted(state.balances.items()):
        if balance:
            what = "An organisation has contribution credits"
            values = (("credits", str(balance)),)
            yield Finding(number, FindingKind.OBSERVED, what, party=owner, role="owner", evidence=values)
