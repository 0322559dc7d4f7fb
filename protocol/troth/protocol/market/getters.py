"""What each getter of a deployment must answer, from the folded state: who trusts no node compares all of them.

Live cases and summons are kept as the hash of their state alone, so that equality there is equality of everything that
their next call takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from troth.protocol.market.calls import PartView, view
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import rules_of
from troth.protocol.market.state import CaseRecord, State, SummonsRecord, TabRecord
from troth.protocol.market.types import NO_HASH, Ask, Contracts, GroupEntry, PotKind, Role, Rules, TabState
from troth.protocol.types import Address, Hash32

ANSWERED, UNANSWERED = Hash32((1).to_bytes(32)), Hash32((2).to_bytes(32))
"""What Summons keeps of one that is over."""


@dataclass(frozen=True, slots=True)
class GetterQuestion:
    """A getter, and what it must answer at the block up to which was folded."""

    part: Part
    view: PartView[Any]
    expected: Any
    about: str


@dataclass(frozen=True, slots=True)
class GetterQuestions:
    """Makes the words of one deployment's state; ``blocks`` are the past blocks at which groups are compared."""

    contracts: Contracts
    state: State
    blocks: Collection[int]

    def words(self) -> Iterator[GetterQuestion]:
        """All of them."""
        yield from self._money()
        yield from self._parties()
        yield from self._groups()
        yield from self._court()

    def _word(self, part: Part, function: str, *arguments: object, returns: Any, expected: Any) -> GetterQuestion:
        shown = ", ".join("0x" + one.hex() if isinstance(one, bytes) else str(one) for one in arguments)
        found = view(self.contracts, part, function, *arguments, returns=returns)
        return GetterQuestion(part, found, expected, f"{function}({shown})")

    def _money(self) -> Iterator[GetterQuestion]:
        for (kind, pot), balance in self.state.pots.items():
            if kind is not PotKind.BURNT:
                yield self._word(Part.BANK, "balanceOf", kind, pot, returns=int, expected=balance)
        burnt = self.state.pot(PotKind.BURNT, NO_HASH)
        yield self._word(Part.BANK, "balanceOf", PotKind.BURNT, NO_HASH, returns=int, expected=burnt)
        for tab, record in self.state.tabs.items():
            yield self._word(Part.BANK, "tabOf", tab, returns=TabState, expected=self.state.tab_state(tab))
            yield from self._claim(tab, record)

    def _claim(self, tab: Hash32, record: TabRecord) -> Iterator[GetterQuestion]:
        claim = record.claim
        expected = (NO_HASH, 0) if claim is None else (claim.claim_id, len(claim.objections))
        yield self._word(Part.BANK, "claimOf", tab, returns=(Hash32, int), expected=expected)
        short = (record.short, record.shown_block)
        yield self._word(Part.BANK, "shortOf", tab, returns=(int, int), expected=short)
        for number, one in {} if claim is None else claim.objections.items():
            arguments = (claim.claim_id, number) if claim else ()
            asked = (one.deposit, one.deadline)
            yield self._word(Part.BANK, "objectionOf", *arguments, returns=(int, int), expected=asked)
        for struck in record.struck:
            held = self.state.held_objections(struck)
            for number, one in struck.objections.items():
                left = (one.deposit, one.deadline) if number in held else (0, 0)
                arguments = (struck.claim_id, number)
                yield self._word(Part.BANK, "objectionOf", *arguments, returns=(int, int), expected=left)

    def _parties(self) -> Iterator[GetterQuestion]:
        ask, registry = self._word, Part.REGISTRY
        for operator, party in self.state.parties.items():
            standing = (party.role, party.owner, party.exit_block)
            yield ask(registry, "roleOf", operator, returns=(Role, Address, int), expected=standing)
            yield ask(registry, "ownerOf", operator, returns=Address, expected=party.owner)
            yield ask(registry, "payoutOf", operator, returns=Address, expected=self.state.payout_of(operator))
            yield ask(registry, "classOf", operator, returns=Hash32, expected=party.execution_class)
            yield ask(registry, "vrfKeyOf", operator, returns=(int, int), expected=party.vrf_key)
            suspension = self.state.suspensions.get(operator)
            now = (NO_HASH, 0)
            if suspension is not None:
                now = (NO_HASH if suspension.restored else suspension.case_id, suspension.block)
            yield ask(registry, "suspensionOf", operator, returns=(Hash32, int), expected=now)
            convictions = self.state.convictions.get(operator, ())
            yield ask(registry, "convictionCount", operator, returns=int, expected=len(convictions))
            for block in self.blocks:
                void = self.state.is_void(operator, block)
                yield ask(registry, "isVoidByAny", operator, block, returns=bool, expected=void)
        for known, definition in self.state.classes.items():
            model = self.state.models[definition.model]
            rules = rules_of(definition, hidden_size=model.hidden_size, layers=model.layers)
            yield ask(registry, "rulesOf", known, returns=Rules, expected=rules)

    def _groups(self) -> Iterator[GetterQuestion]:
        state, registry = self.state, Part.REGISTRY
        for group in state.sizes:
            for block in self.blocks:
                size = state.size_at(group, block)
                yield self._word(registry, "sizeAt", group, block, returns=int, expected=size)
                for place, entry in enumerate(state.members_at(group, block)):
                    yield self._word(registry, "entryAt", group, place, block, returns=GroupEntry, expected=entry)
        for group, operator in state.asks:
            for block in self.blocks:
                ask = state.ask_at(group, operator, block)
                yield self._word(registry, "askAt", group, operator, block, returns=Ask, expected=ask)

    def _court(self) -> Iterator[GetterQuestion]:
        state, court = self.state, Part.COURT
        for case_id, record in state.cases.items():
            yield self._word(court, "caseOf", case_id, returns=Hash32, expected=case_word(record))
            for (round_, reviewer), commitment in record.posts.items():
                arguments = (case_id, round_, reviewer)
                yield self._word(court, "postOf", *arguments, returns=Hash32, expected=commitment)
            for (round_, party), shown in record.reveals.items():
                yield self._word(court, "revealOf", case_id, round_, party, returns=Hash32, expected=shown)
            order, segment = record.state.order, record.state.segment
            fell = state.is_voided(order, segment)
            yield self._word(court, "isVoided", order, segment, returns=bool, expected=fell)
            yield self._word(court, "isVoided", order, 255, returns=bool, expected=state.is_voided(order, 255))
        for (owner, execution_class), pool in state.pools.items():
            pooled = (pool.count, pool.since)
            yield self._word(court, "pooledOf", owner, execution_class, returns=(int, int), expected=pooled)
        for summons_id, summons in state.summons.items():
            expected = summons_word(summons)
            yield self._word(Part.SUMMONS, "summonsOf", summons_id, returns=Hash32, expected=expected)
            for function, nodes in (("silentOf", summons.silent), ("respondedOf", summons.responded)):
                yield self._word(Part.SUMMONS, function, summons_id, returns=tuple[Address, ...], expected=nodes)
        for subject in state.proven:
            yield self._word(Part.EVIDENCE, "isProven", subject, returns=bool, expected=True)
        for scheduler in state.logs:
            number, chain = state.head_of(scheduler)
            yield self._word(Part.LOG, "headOf", scheduler, returns=(int, bytes), expected=(number, chain[:24]))


def case_word(record: CaseRecord) -> Hash32:
    """What the Court keeps of a case: the hash of its state, or the number of its outcome."""
    return state_hash(record.state) if record.outcome is None else Hash32(int(record.outcome).to_bytes(32))


def summons_word(record: SummonsRecord) -> Hash32:
    """What Summons keeps of one: the hash of its state, or how it ended."""
    if record.answered is None:
        return state_hash(record.state)
    return ANSWERED if record.answered else UNANSWERED
