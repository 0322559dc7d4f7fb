"""Answers what others ask about cases, at a channel of its own: deliveries, pledges, showings, and what is held.

Who may call: parties that the registry knows, and openers and clients of live cases. What shows a prompt is given to
the drawn reviewers of a live case alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from troth.cases import evidence as files
from troth.cases.courtroom import ChainView, Courtroom
from troth.cases.defending import Defender
from troth.cases.errors import EvidenceRefused, NotYours
from troth.cases.evidence import Evidence
from troth.cases.foreseeing import foreseen
from troth.cases.gathering import holders_of
from troth.cases.reviewing import Reviewer
from troth.protocol.errors import WireError
from troth.protocol.market import canonical
from troth.protocol.market.proceedings import CasePhase, CaseState
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.market.views import parameters_of, rules_in
from troth.protocol.types import Address, Hash32
from troth.protocol.wire import CASE_REQUESTS, Reply
from troth.protocol.wire_cases import (
    PATH,
    PIECE_LIMIT,
    Fetch,
    Fetched,
    Furnish,
    Furnished,
    Material,
    Pledge,
    Pledged,
    Show,
    Shown,
)
from troth.transport.channel_server import ChannelLimits, ChannelServer
from troth.transport.identity import Operator

LIMITS = ChannelLimits(in_flight=32, in_flight_per_connection=8, in_flight_bytes=128 * 2**20, connections=64)
KEPT_SECONDS = 10.0
"""For which rows stay after the last piece that somebody asked for; those of a long text may have half a gigabyte."""
ReadRows = Callable[[Hash32, int], Awaitable[bytes | None]]
_REMEDY = "Look up the case on the chain, and compare both views of it."


class Holdings(Protocol):
    """What a scheduler or node still holds of an order that it served, for a case over it."""

    async def evidence_of(self, order: Hash32) -> Evidence | None:
        """Everything that was signed, with request, answer and salts."""

    async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
        """The salt of the order's heads, then the rows that a segment gave."""


class RowsInPieces:
    """The rows of one segment at a time, read once while they are fetched: reviewers of a case ask for the same ones at
    the same time, piece by piece."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._place: tuple[Hash32, int] | None = None
        self._rows: bytes | None = None
        self._end: asyncio.TimerHandle | None = None

    async def of(self, order: Hash32, segment: int, read: ReadRows) -> bytes | None:
        """What ``read`` gives, or gave a moment ago; None is not kept."""
        async with self._reading:
            if self._rows is None or self._place != (order, segment):
                self._forget()
                self._place, self._rows = (order, segment), await read(order, segment)
            if self._end is not None:
                self._end.cancel()
            self._end = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)
            return self._rows

    def _forget(self) -> None:
        self._place = self._rows = None


@dataclass(slots=True)
class CaseContext:
    """One party's context; what it is not (reviewer, judged, holder) is None.

    ``courtroom``: by which it knows reviewers that are drawn and of whom nobody has told the chain; None: it does not.
    """

    seen: Callable[[], ChainView]
    reviewer: Reviewer | None = None
    defender: Defender | None = None
    holdings: Holdings | None = None
    courtroom: Courtroom | None = None
    _rows: RowsInPieces = field(default_factory=RowsInPieces)

    def server(self, operator: Operator) -> ChannelServer:
        """The channel to mount beside that for work."""
        return ChannelServer(
            operator,
            self.handle,
            self.authorise,
            limits=LIMITS,
            requests=CASE_REQUESTS,
            who="parties of the registry and of live cases",
            path=PATH,
        )

    def authorise(self, sender: Address) -> bool:
        """Whether a sender may connect."""
        state = self.seen().state
        if sender in state.parties:
            return True
        return any(one.live and sender in {one.state.opener, one.state.client} for _, one in state.cases.items())

    async def handle(self, sender: Address, header: Any, payload: memoryview) -> tuple[Reply, bytes]:
        """One message about a case."""
        match header:
            case Furnish():
                return await self._furnish(sender, header, bytes(payload)), b""
            case Fetch():
                return await self._fetch(sender, header)
            case Pledge():
                return await self._pledge(header)
            case Show():
                return await self._show(header)
            case _:
                raise WireError("This is no message about a case", type(header).__name__, _REMEDY)

    def _record(self, case: bytes) -> tuple[State, CaseRecord]:
        state = self.seen().state
        record = state.cases.get(Hash32(case))
        if record is None or not record.live:
            raise NotYours("No such case is on its way", case.hex(), _REMEDY)
        return state, record

    async def _reviewers(self, record: CaseRecord) -> tuple[Address, ...]:
        """Who judges in a case, also where that is fixed and nobody has said so on chain."""
        seen, state = self.seen(), record.state
        if self.courtroom is None or state.phase is not CasePhase.OPENED:
            return state.reviewers
        rules, parameters = rules_in(seen.state, state.execution_class), parameters_of(seen.state)
        ahead = await foreseen(self.courtroom, state, rules, parameters, seen.block)
        return () if ahead is None else ahead.reviewers

    async def _furnish(self, sender: Address, header: Furnish, payload: bytes) -> Furnished:
        _, record = self._record(header.case)
        reviewer = self.reviewer
        if reviewer is None or reviewer.operator.address not in await self._reviewers(record):
            raise NotYours("This node does not judge in the case", header.case.hex(), _REMEDY)
        if header.segment not in _segments_read(record.state, header.material):
            raise EvidenceRefused("This is not read in the case", (header.material, header.segment), _REMEDY)
        case, named = Hash32(header.case), sender in holders_of(record.state, reviewer.operator.address)
        held = reviewer.gatherer.inbox.put(
            case, sender, header.material, header.segment, header.start, header.size, payload, named=named
        )
        return Furnished(held)

    async def _fetch(self, sender: Address, header: Fetch) -> tuple[Reply, bytes]:
        state, record = self._record(header.case)
        if sender not in await self._reviewers(record):
            raise NotYours("Only reviewers of the case are given anything", sender, _REMEDY)
        data = await self._held(state, record, header.material, header.segment)
        if data is None or header.start >= len(data):
            return Fetched(0), b""
        piece = len(data) if header.material == "evidence" else PIECE_LIMIT
        return Fetched(len(data)), data[header.start : header.start + piece]

    async def _held(self, state: State, record: CaseRecord, material: Material, segment: int) -> bytes | None:
        """From what this party served itself, else from what it was given as a reviewer."""
        order = record.state.order
        if material == "opening" and self.defender is not None:
            opening = await self.defender.opening(state, record.case_id)
            if opening is not None:
                return opening
        if self.holdings is not None and material == "evidence":
            evidence = await self.holdings.evidence_of(order)
            if evidence is not None:
                return files.encode(evidence)
        if self.holdings is not None and material == "rows":
            rows = await self._rows.of(order, segment, self.holdings.rows_of)
            if rows is not None:
                return rows
        if self.reviewer is None:
            return None
        return next(self.reviewer.gatherer.inbox.every(record.case_id, material, segment), None)

    async def _pledge(self, header: Pledge) -> tuple[Reply, bytes]:
        self._record(header.case)
        pledge = None
        if self.reviewer is not None:
            pledge = await self.reviewer.pledge(self.seen(), Hash32(header.case), header.round)
        return (Pledged(False), b"") if pledge is None else (Pledged(True), canonical.encode(pledge))

    async def _show(self, header: Show) -> tuple[Reply, bytes]:
        seen, case = self.seen(), Hash32(header.case)
        shown: Any = None
        if header.party == "node" and self.defender is not None:
            shown = await self.defender.show(seen, case, header.round)
        elif header.party == "reviewer" and self.reviewer is not None:
            shown = await self.reviewer.show(seen, case, header.round)
        return (Shown(False), b"") if shown is None else (Shown(True), canonical.encode(shown))


def _segments_read(state: CaseState, material: Material) -> set[int]:
    """Of which segments a reviewer reads a material: rows of the judged one, and of the one before."""
    if material == "evidence":
        return {0}
    return {state.segment, state.segment - 1} if material == "rows" else {state.segment}
