"""How a reviewer comes by what it needs: what was delivered, then what holders answer, each checked by hashes.

Holders are asked in an order: the scheduler (who owes rows), the opener and the client where they have an endpoint,
the judged node, and the other reviewers, whom somebody may have served who serves not all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from troth.cases import evidence as files
from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import SIZE_LIMIT
from troth.cases.inbox import CaseInbox
from troth.cases.materials import OPENING_BYTES, OrderText, Papers, opening_in, papers_of, rows_in, rows_size, text_of
from troth.cases.parties import Holders
from troth.protocol.market import court
from troth.protocol.market.proceedings import CaseState
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import Rules
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_cases import Material

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything that is there; ``missing``: the first thing that is not, by who owes it."""

    papers: Papers | None = None
    text: OrderText | None = None
    before: bytes | None = None
    rows: bytes | None = None
    opening: tuple[Hash32, Hash32] | None = None
    missing: Opinion | None = None


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Gathers for one reviewer."""

    account: Address
    inbox: CaseInbox
    holders: Holders

    async def gather(self, state: CaseState, rules: Rules, vrf_key: tuple[int, int]) -> Gathered:
        """What can be had now, in the order in which it is needed."""
        both = await self._find(state, "evidence", 0, SIZE_LIMIT, lambda data: _text_in(data, state, vrf_key))
        if both is None:
            return Gathered(missing=Opinion.MISSING_PROMPT)
        papers, text = both
        before = None
        if state.segment:
            before = await self._rows(state, state.segment - 1, papers, text, rules)
            if before is None:
                return Gathered(papers, text, missing=Opinion.MISSING_INPUT)
        opening = await self._find(state, "opening", state.segment, OPENING_BYTES, lambda data: opening_in(state, data))
        # Roots are compared in an exact class, so that nobody has to send rows there.
        rows = None if rules.exact else await self._rows(state, state.segment, papers, text, rules)
        if opening is None or (rows is None and not rules.exact):
            return Gathered(papers, text, before, rows, opening, Opinion.MISSING_TRACE)
        return Gathered(papers, text, before, rows, opening)

    async def _rows(
        self, state: CaseState, segment: int, papers: Papers, text: OrderText, rules: Rules
    ) -> bytes | None:
        most = rows_size(papers.results[segment], rules)
        return await self._find(state, "rows", segment, most, lambda data: rows_in(papers, segment, data, text, rules))

    async def _find(
        self,
        state: CaseState,
        material: Material,
        segment: int,
        most: int,
        read: Callable[[bytes], Found | None],
    ) -> Found | None:
        case = court.case_of(state)
        for data in self.inbox.every(case, material, segment):
            found = await asyncio.to_thread(read, data)
            if found is not None:
                self.inbox.keep(case, material, segment, data)
                return found
        for holder in holders_of(state, self.account):
            fetched = await self.holders.fetch(holder, case, material, segment, most)
            found = None if fetched is None else await asyncio.to_thread(read, fetched)
            if found is not None and fetched is not None:
                self.inbox.keep(case, material, segment, fetched)
                return found
        return None


def holders_of(state: CaseState, account: Address) -> tuple[Address, ...]:
    """Whom a reviewer asks, each once and never itself."""
    named = (state.scheduler, state.opener, state.client, state.node, *state.reviewers)
    return tuple(one for one in dict.fromkeys(named) if one != account)


def _text_in(data: bytes, state: CaseState, vrf_key: tuple[int, int]) -> tuple[Papers, OrderText] | None:
    try:
        papers = papers_of(files.decode(data), state)
    except EvidenceRefused:
        return None
    text = text_of(papers, vrf_key)
    return None if text is None else (papers, text)
