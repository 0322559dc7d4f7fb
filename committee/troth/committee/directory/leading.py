"""A slot: its leader asks for opinions, proposes, gathers signatures and spreads the list; the others catch up.

Which entries more than 2/3 of the members will sign together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from troth.chain.duty import Duty
from troth.committee import requests
from troth.committee.directory.member import Member
from troth.committee.directory.proposal import Proposal, decode_proposal, encode_proposal
from troth.committee.errors import CommitteeError, NoAgreement
from troth.overlay.directory.errors import DirectoryError
from troth.overlay.directory.fetching import fetch_from
from troth.overlay.directory.signing import assemble, encode_signed, list_message
from troth.protocol import committee, typed_data
from troth.protocol.errors import InvalidSignature
from troth.protocol.types import Address

log = logging.getLogger(__name__)
SHORTEST_WAIT, LONGEST_WAIT = 4.0, 60.0
"""Seconds for the other members' opinions, which connect to relays first."""
SHORTEST_TICK, LONGEST_TICK = 0.2, 30.0


def common_entries(
    own: frozenset[bytes], others: Mapping[Address, frozenset[bytes]], needed: int
) -> frozenset[bytes] | None:
    """What the leader and `needed` - 1 more members all accept; None if too few answered.

    Each signer must accept every entry, so the entries are an intersection. Members join it in the order in which they
    leave the most of it: one who accepts nothing, or only entries that the leader cannot reach itself, comes last and
    takes nothing away as long as enough others agree.
    """
    if len(others) + 1 < needed:
        return None
    kept, left = own, dict(others)
    for _ in range(needed - 1):
        best = max(sorted(left), key=lambda operator: len(kept & left[operator]))
        kept &= left.pop(best)
    return kept


class Leading:
    """The part of a member that acts by the clock."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._tick = min(LONGEST_TICK, max(SHORTEST_TICK, member.schedule.period / 10))
        self._wait = min(LONGEST_WAIT, max(SHORTEST_WAIT, member.schedule.period / 3))

    async def run(self) -> None:
        """For ever: lead when it is our turn, else see that we have the slot's list."""
        await Duty("agreeing on a list", self.act, every=self._until_next).run()

    async def ask_again(self) -> None:
        """For ever: see that relays still answer, so that no list has to wait for it."""
        await asyncio.sleep(self._tick)
        again = self._member.admission.ask_again
        await Duty("asking relays again", again, every=self._tick, longest=self._tick).run()

    def _until_next(self) -> float:
        now, period = self._member.clock(), self._member.schedule.period
        return min(self._tick, period - now % period + 0.01)

    async def act(self) -> None:
        """What this moment asks for; raises NoAgreement if it is our turn and too few members agree."""
        member = self._member
        valid_after = member.schedule.slot_start(member.clock())
        if member.newest is not None and member.newest.listing.valid_after >= valid_after:
            return
        await self.catch_up()
        if member.newest is not None and member.newest.listing.valid_after >= valid_after:
            return
        if member.schedule.leader(valid_after, member.membership) == member.operator:
            try:
                await self.lead(valid_after)
            except (CommitteeError, DirectoryError):
                member.metrics.led.labels("failed").inc()
                raise
            member.metrics.led.labels("agreed").inc()

    async def catch_up(self) -> None:
        """Ask every other member for its list, and keep the newest."""
        known = None if self._member.newest is None else self._member.newest.signed.digest.hex()
        others = self._others()
        found = await asyncio.gather(
            *(fetch_from(other, known, self._wait) for other in others), return_exceptions=True
        )
        for other, data in zip(others, found, strict=True):
            if isinstance(data, bytes):
                try:
                    self._member.take(data)
                except (DirectoryError, CommitteeError) as error:
                    log.warning("%s serves a list that is not believed: %s", other.endpoint, error)

    async def lead(self, valid_after: int) -> None:
        """Bring a list for this time about; raises NoAgreement."""
        member = self._member
        member.require_membership()
        claimed = member.store.claimed(valid_after)
        proposal = await self._proposal(valid_after) if claimed is None else decode_proposal(claimed)
        content, own = await member.sign(proposal)
        signatures = {member.operator: own, **await self._signatures(proposal, content)}
        needed = committee.threshold(len(member.membership.members))
        if len(signatures) < needed:
            raise NoAgreement(f"{needed} members must sign", len(signatures), "The next leader tries again.")
        data = encode_signed(assemble(content, signatures))
        member.take(data)
        await self._ask_all(requests.LIST, "/v1/lists", data, valid_after)

    async def _proposal(self, valid_after: int) -> Proposal:
        member = self._member
        entries = await member.acceptable(member.admission.entries())
        asked = entries.proposal(valid_after, member.previous_data())
        answers = await self._ask_all(requests.OPINION, "/v1/opinions", encode_proposal(asked), valid_after)
        opinions = {operator: _names(answer) for operator, answer in answers.items()}
        needed = committee.threshold(len(member.membership.members))
        chosen = common_entries(entries.names(), opinions, needed)
        if chosen is None:
            raise NoAgreement(f"{needed} members must agree", len(opinions) + 1, "The others do not answer.")
        return entries.only(chosen).proposal(valid_after, asked.previous)

    async def _signatures(self, proposal: Proposal, content: bytes) -> dict[Address, bytes]:
        body = encode_proposal(proposal)
        answers = await self._ask_all(requests.PROPOSAL, "/v1/proposals", body, proposal.valid_after)
        message, domain = list_message(content), self._member.membership.domain
        found = {}
        for operator, signature in answers.items():
            try:
                typed_data.require_signer(message, domain, signature, operator)
            except InvalidSignature as error:
                log.warning("%s signed something else: %s", operator, error)
            else:
                found[operator] = signature
        return found

    async def _ask_all(self, kind: str, path: str, body: bytes, slot: int) -> dict[Address, bytes]:
        """Answers of those who gave one."""
        member, others = self._member, self._others()
        headers = requests.headers_of(kind, body, slot, member.membership.domain, member.secret)
        results = await asyncio.gather(
            *(requests.send(other, path, body, headers, self._wait) for other in others), return_exceptions=True
        )
        answers = {}
        for other, result in zip(others, results, strict=True):
            if isinstance(result, bytes):
                answers[other.operator] = result
            else:
                log.warning("%s gave no %s: %s", other.endpoint, kind, result)
        return answers

    def _others(self) -> list[committee.CommitteeMember]:
        return [one for one in self._member.membership.members if one.operator != self._member.operator]


def _names(answer: bytes) -> frozenset[bytes]:
    """The names in an opinion; a member that answers garbage accepts nothing."""
    try:
        return frozenset(msgspec.msgpack.decode(answer, type=list[bytes]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return frozenset()
