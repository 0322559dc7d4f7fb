"""Disputing: both sides' turns, taken as the chain shows them.

The state of a dispute is the contract's, read from its events; what a trace is computed from, and the layers of it that
are computed, are on disk. So a side that is killed at any step goes on where the dispute stands, and a turn that was
taken already is refused by the contract before it costs anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from troth.cases.errors import CaseError, NothingToDo
from troth.node.court.canonical_traces import CanonicalTraces, TracePlace
from troth.node.court.dispute_chain import DisputeChain
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import Numbers, SegmentText
from troth.node.errors import NodeError
from troth.protocol.arithmetic.operations import SUM_BYTES
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.game import DisputeTurn, Matter, NamedNode, SeenTrace, place_of
from troth.protocol.disputes.layout import NUDGES, WORD_NUMBERS, Layout
from troth.protocol.disputes.life import Life
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.proofs import part_proof, row_proof, step_proof
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace
from troth.protocol.disputes.sums import unpacked
from troth.protocol.errors import ProtocolError
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import ZERO_HASH, Hash32

log = logging.getLogger(__name__)

MOST_AT_ONCE = 8
"""Turns that are taken side by side: each waits for a block."""
ELSEWHERE = "Show its levels from wherever the order's text is kept, before the deadline."


@dataclass(frozen=True, slots=True)
class DisputeStanding:
    """A dispute of this account: what ``troth node status`` says of it. ``progress``: of the trace, from 0 to 1."""

    life: Life
    accuses: bool
    is_due: bool
    progress: float
    trouble: str


@dataclass(slots=True)
class Disputant:
    """One account's disputes. ``text_of`` knows what a segment read; the signed rows of it may be missing."""

    chain: DisputeChain
    weights: Callable[[], OpenedWeights]
    traces: CanonicalTraces
    text_of: Callable[[Matter], Awaitable[SegmentText | None]]
    rows_again: Callable[[SegmentText], Awaitable[SegmentText]] | None = None
    taken: int = 0
    """Turns that this process took."""
    _trouble: dict[Hash32, str] = field(default_factory=dict)
    _signed: dict[Hash32, Numbers] = field(default_factory=dict)
    """Own signed rows in disputes that begin."""
    _failed: dict[Hash32, int] = field(default_factory=dict)
    """How many nudges of a dispute defend nothing."""
    _standing: tuple[DisputeStanding, ...] = ()

    @property
    def standing(self) -> tuple[DisputeStanding, ...]:
        """The disputes under way, as of the last look."""
        return self._standing

    async def look(self) -> int:
        """Take every turn that is this account's now, those with the nearest deadline first; how many were taken."""
        mine = [one for one in (await self.chain.lives()).values() if one.ending is None and self._is_mine(one)]
        mine.sort(key=lambda one: one.state.deadline)
        self.traces.drop_others({_place(one) for one in mine})
        block, took = await self.chain.block(), 0
        for start in range(0, len(mine), MOST_AT_ONCE):
            took += sum(await asyncio.gather(*(self._take(one, block) for one in mine[start : start + MOST_AT_ONCE])))
        under_way = {one.id for one in mine}
        for known in (self._trouble, self._signed, self._failed):
            for ended in known.keys() - under_way:
                del known[ended]
        self.taken += took
        self._standing = tuple(self._stands(one) for one in mine)
        return took

    def _is_mine(self, one: Life) -> bool:
        return self.chain.account in {one.state.accused, one.state.accuser}

    def _stands(self, one: Life) -> DisputeStanding:
        try:
            progress = self.traces.progress(_place(one), Layout.of(one.matter, self.weights().shape))
        except (NodeError, ProtocolError):
            progress = 0.0
        accuses, trouble = one.state.accuser == self.chain.account, self._trouble.get(one.id, "")
        return DisputeStanding(one, accuses, _mover(one) == self.chain.account, progress, trouble)

    async def _take(self, one: Life, block: int) -> bool:
        """Whether a turn was taken. What cannot be is said once, and tried again at the next look."""
        try:
            call = await self._call(one, block)
            if call is None:
                return False
            mined = await self.chain.send(call)
        except Exception as error:  # noqa: BLE001 - also what nobody foresaw: the other disputes' deadlines go on
            if self._trouble.get(one.id) != str(error):
                log.warning("a turn of dispute 0x%s was not taken: %s", one.id.hex(), error)
            self._trouble[one.id] = str(error)
            return False
        self._trouble.pop(one.id, None)
        log.warning("dispute 0x%s: %s in block %d", one.id.hex(), call.function, mined.block)
        return True

    async def _call(self, one: Life, block: int) -> Call | None:
        if one.state.accuser == self.chain.account and await self.chain.is_convicted(one.state.result):
            return calls.close(one.id, one.state)
        if _mover(one) != self.chain.account:
            if one.state.accuser == self.chain.account and block < one.state.deadline:
                # Computed while the accused computes, so that the next turn is not late.
                self._committed(one, await self._text(one.matter))
            return life.ending_by_silence(one, block)
        if block >= one.state.deadline:
            return None
        text = await self._text(one.matter)
        if one.state.turn == DisputeTurn.ROW:
            return calls.give_row(one.id, one.state, one.matter, await self._signed_row(text, one.state.asked - 1))
        trace = self._committed(one, text)
        if trace is None:
            return None
        if one.state.turn == DisputeTurn.SUM:
            return await asyncio.to_thread(life.giving_sum, one, trace)
        if one.state.turn == DisputeTurn.ACCUSER:
            return await asyncio.to_thread(self._accuse, one, trace, text)
        if one.state.root == ZERO_HASH and isinstance(trace, SegmentTrace):
            return await self._begin(one, trace, text)
        return await asyncio.to_thread(life.answer, one, trace)

    def _committed(self, one: Life, text: SegmentText) -> SegmentTrace | DoubledTrace | None:
        """The trace that the accused committed to if it is honest; None while it is computed."""
        plain = self._trace(one, text)
        if not one.state.nudge:
            return plain
        nudged = self._trace(one, text, Nudge(one.state.result, one.state.nudge))
        return None if plain is None or nudged is None else DoubledTrace(plain, nudged)

    def _trace(self, one: Life, text: SegmentText, nudge: Nudge | None = None) -> SegmentTrace | None:
        layout = Layout.of(one.matter, self.weights().shape)
        return self.traces.want(_place(one), layout, lambda: text.states(self.weights(), layout.position + 1), nudge)

    async def _text(self, matter: Matter) -> SegmentText:
        text = await self.text_of(matter)
        if text is None:
            raise NothingToDo("What this segment read is not kept here", matter.order.hex(), ELSEWHERE)
        return text

    async def _signed_row(self, text: SegmentText, position: int) -> ShownRow:
        """The accused's own row, computed again where only hashes travelled."""
        if text.given is None and self.rows_again is not None:
            text = await self.rows_again(text)
        return text.shown(position)

    # ----------------------------------------------------------------------------------------------------- defending

    async def _begin(self, one: Life, plain: SegmentTrace, text: SegmentText) -> Call | None:
        """The first levels; with a nudge where the own row is far from the canonical one, as rounding can make it."""
        signed = await self._own_row(one, text)
        if signed is None or plain.furthest(signed) is None:
            return await asyncio.to_thread(life.answer, one, plain)
        for number in range(self._failed.get(one.id, 0) + 1, NUDGES + 1):
            nudged = self._trace(one, text, Nudge(one.state.result, number))
            if nudged is None:
                return None
            doubled = DoubledTrace(plain, nudged)
            if doubled.furthest(signed, doubled.most_moved) is None:
                return await asyncio.to_thread(life.defending, one, doubled, number)
            self._failed[one.id] = number
        log.error("dispute 0x%s: the signed row is further away than rounding makes it", one.id.hex())
        return await asyncio.to_thread(life.answer, one, plain)

    async def _own_row(self, one: Life, text: SegmentText) -> Numbers | None:
        """The signed row in dispute; None where it cannot be had, so that nothing is known to defend."""
        if one.id not in self._signed:
            try:
                row = (await self._signed_row(text, one.matter.position)).row
            except (CaseError, NodeError, ProtocolError) as error:
                log.warning("dispute 0x%s: the own row is not known: %s", one.id.hex(), error)
                return None
            self._signed[one.id] = np.frombuffer(row, "<f4")
        return self._signed[one.id]

    # ------------------------------------------------------------------------------------------------------ accusing

    def _accuse(self, one: Life, trace: SegmentTrace | DoubledTrace, text: SegmentText) -> Call | None:
        """Point at what differs, or convict."""
        if one.state.number:
            return self._by_part(one, trace)
        choice, seen = life.pointed(one, trace), one.seen(trace)
        if choice is None or _pads(one, choice, trace.layout):
            return self._by_row(one, trace, seen, text)
        return self._by_step(one, trace, seen, choice, text) if life.at_word(one) else life.choosing(one, choice)

    def _by_row(self, one: Life, trace: SegmentTrace | DoubledTrace, seen: SeenTrace, text: SegmentText) -> Call | None:
        """The trace is true: the signed row is not, or the accusation was wrong."""
        signed = shown_row(one, text, one.matter.position)
        if signed is None:
            return calls.ask_row(one.id, one.state, one.matter, one.matter.position)
        row, moved = np.frombuffer(signed.row, "<f4"), one.state.moved
        element = trace.furthest(row) if isinstance(trace, SegmentTrace) else trace.furthest(row, moved)
        if element is None:
            raise NothingToDo("The row is as near as honest rows are, so that the bond is lost", one.id.hex(), "")
        proof = row_proof(trace.layout, seen, element, signed, moved)
        return calls.wrong_row(one.id, one.state, one.matter, one.shape, proof)

    def _by_step(
        self,
        one: Life,
        trace: SegmentTrace | DoubledTrace,
        seen: SeenTrace,
        choice: NamedNode,
        text: SegmentText,
    ) -> Call | None:
        """The first number of the word that differs follows from others than the accused has."""
        tensor, word = one.state.tensor, place_of(one.state, choice)
        own = trace.tensor(tensor).node(0, word)
        number = next(at for at in range(WORD_NUMBERS) if own[4 * at : 4 * at + 4] != choice.node[4 * at : 4 * at + 4])
        place = trace.layout.place(tensor, word, number)
        if place is not None and trace.layout.reads(place) and not trace.layout.first:
            # The row that the node signed at this position binds the token that it read.
            given = shown_row(one, text, place.position)
            if given is None:
                return calls.ask_row(one.id, one.state, one.matter, place.position)
            proof = step_proof(trace.layout, seen, place, number, self.weights().open, lambda _: given)
        elif place is not None and trace.parts(place):
            return calls.ask_sum(one.id, one.state, choice, number)
        else:
            proof = step_proof(trace.layout, seen, place, number, self.weights().open, text.entered)
        return calls.wrong_step(one.id, one.state, one.matter, one.shape, choice, proof)

    def _by_part(self, one: Life, trace: SegmentTrace | DoubledTrace) -> Call:
        """The first part of the sum that is another one than what its terms make; or what was given makes no sum."""
        state, number = one.state, one.state.number - 1
        place = trace.layout.place(state.tensor, state.place, number)
        assert place is not None
        own = trace.parts(place)
        index = first_other(own, one.parts)
        if index is None:
            return calls.wrong_sum(one.id, state, one.matter, one.shape, one.parts)
        proof = part_proof(trace.layout, one.seen(trace), place, number, index, self.weights().open)
        return calls.wrong_part(one.id, state, one.matter, one.shape, one.parts, index, proof)


def shown_row(one: Life, text: SegmentText, position: int) -> ShownRow | None:
    """A signed row as the accuser knows it: from the order's papers, or as the accused gave it when it was asked."""
    if text.given is not None:
        return text.shown(position)
    return one.given if one.state.asked == position + 1 else None


def first_other(own: tuple[int, ...], given: bytes) -> int | None:
    """The first part that was given otherwise; None: all are true, or are no parts of this sum at all."""
    if len(given) != SUM_BYTES * len(own):
        return None
    return next((at for at, (one, other) in enumerate(zip(own, unpacked(given), strict=True)) if one != other), None)


def _mover(one: Life) -> str:
    """Whose turn it is."""
    return one.state.accuser if one.state.turn == DisputeTurn.ACCUSER else one.state.accused


def _place(one: Life) -> TracePlace:
    return one.matter.order, one.matter.segment, one.matter.position


def _pads(one: Life, choice: NamedNode, layout: Layout) -> bool:
    """Whether all tensors are as they must be, and only what pads the tree over them differs."""
    below = one.state.left - one.state.shown
    return not one.state.in_tensor and place_of(one.state, choice) << below >= layout.count
