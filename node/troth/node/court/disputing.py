"""Disputing: both sides' turns, taken as the chain shows them.

Nothing is kept between two looks but what a trace is computed from: the state of a dispute is the contract's, read from
its events. So a side that is killed at any step goes on where the dispute stands, and a turn that was taken already is
refused by the contract before it costs anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from troth.cases.errors import NothingToDo
from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.records import TransactionReceipt
from troth.node.court.opened_weights import OpenedWeights
from troth.protocol.calls import Call
from troth.protocol.disputes import calls, life
from troth.protocol.disputes.game import DisputeTurn, Matter, NamedNode, SeenTrace, place_of
from troth.protocol.disputes.layout import WORD_NUMBERS, Layout
from troth.protocol.disputes.life import Life
from troth.protocol.disputes.proofs import row_proof, step_proof
from troth.protocol.disputes.segment_trace import SegmentTrace, segment_trace
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import Hash32

log = logging.getLogger(__name__)

Send = Callable[[Call, Key], Awaitable[TransactionReceipt]]
"""Sends a transaction to the contract and waits; ChainRejected if the contract refuses, before gas is spent."""


class DisputedRows(Protocol):
    """What a segment read and signed, for one of its rows in dispute."""

    def states(self, positions: int) -> NDArray[np.float32]:
        """What the segment read at the first positions, of shape (positions, hidden): embeddings or rows."""

    def signed(self, position: int) -> NDArray[np.float32]:
        """The row that the node signed."""

    def shown(self, position: int) -> ShownRow:
        """The signed row with its way to the output head."""

    def entered(self, position: int) -> ShownRow:
        """Of the first segment the same, else the row that it read with its way to the input head."""


def compute(weights: OpenedWeights, layout: Layout, rows: DisputedRows) -> SegmentTrace:
    """The segment's trace by canonical arithmetic: seconds to minutes, on a thread."""
    layout.require()
    states = rows.states(layout.position + 1)
    return segment_trace(layout, weights.layer, states, weights.norm if layout.is_last else None)


def first_far(weights: OpenedWeights, layout: Layout, rows: DisputedRows) -> int | None:
    """The first position up to the layout's whose signed row is too far from the canonical one; None: none is.

    The earlier it is, the less there is to show.
    """
    trace = compute(weights, layout, rows)
    for position in range(layout.position + 1):
        here = SegmentTrace(Layout(layout.model, layout.first, layout.end, position), trace.layers, trace.norm)
        if here.furthest(rows.signed(position)) is not None:
            return position
    return None


@dataclass(slots=True)
class Disputant:
    """One side of disputes over what ``rows_of`` knows; ``start_block`` is not after the contract's."""

    chain: Chain
    send: Send
    key: Key
    weights: OpenedWeights
    rows_of: Callable[[Matter], DisputedRows | None]
    start_block: int = 0
    _traces: dict[Hash32, SegmentTrace] = field(default_factory=dict)

    async def look(self) -> int:
        """Take every turn that is this account's now; how many were taken."""
        return sum([await self._take(one) for one in (await self.lives()).values() if one.ending is None])

    async def lives(self) -> dict[Hash32, Life]:
        """All disputes of the contract."""
        logs = await self.chain.logs(self.start_block, await self.chain.block_number())
        events = (calls.decode_event(log_) for log_ in logs)
        return dict(life.lives(event for event in events if event is not None))

    async def _take(self, one: Life) -> bool:
        """Whether a turn was taken. What cannot be is logged: the next look tries again."""
        me = self.key.address
        if me not in {one.state.accused, one.state.accuser}:
            return False
        try:
            call = await self._call(one, await self.chain.block_number())
            if call is None:
                return False
            receipt = await self.send(call, self.key)
        except (ChainRejected, NothingToDo) as error:
            log.warning("a turn of dispute 0x%s was not taken: %s", one.id.hex(), error)
            return False
        log.warning("dispute 0x%s: %s in block %d", one.id.hex(), call.function, receipt.block)
        return True

    async def _call(self, one: Life, block: int) -> Call | None:
        mine = one.state.accused if one.state.turn == DisputeTurn.ACCUSED else one.state.accuser
        if mine != self.key.address:
            return life.ending_by_silence(one, block)
        trace = await self._trace(one)
        if one.state.turn == DisputeTurn.ACCUSED:
            return await asyncio.to_thread(life.answer, one, trace)
        return await asyncio.to_thread(self._accuse, one, trace)

    async def _trace(self, one: Life) -> SegmentTrace:
        """Computed once while this process lives."""
        if one.id not in self._traces:
            layout = Layout.of(one.matter, self.weights.shape)
            self._traces[one.id] = await asyncio.to_thread(compute, self.weights, layout, self._rows(one.matter))
        return self._traces[one.id]

    def _rows(self, matter: Matter) -> DisputedRows:
        rows = self.rows_of(matter)
        if rows is None:
            raise NothingToDo(
                "This order's inputs are not kept here", matter.order, "ShownLevels for them before the deadline."
            )
        return rows

    def _accuse(self, one: Life, trace: SegmentTrace) -> Call | None:
        """Point at what differs, or convict."""
        choice, seen = life.pointed(one, trace), one.seen(trace)
        if choice is None or self._pads(one, choice, trace.layout):
            return self._by_row(one, trace, seen)
        return self._by_step(one, trace, seen, choice) if life.at_word(one) else life.choosing(one, choice)

    @staticmethod
    def _pads(one: Life, choice: NamedNode, layout: Layout) -> bool:
        """Whether all tensors are as they must be, and only what pads the tree over them differs."""
        below = one.state.left - one.state.shown
        return not one.state.in_tensor and place_of(one.state, choice) << below >= layout.count

    def _by_row(self, one: Life, trace: SegmentTrace, seen: SeenTrace) -> Call | None:
        """The trace is true: the signed row is not, or the accusation was wrong."""
        rows, position = self._rows(one.matter), one.matter.position
        element = trace.furthest(rows.signed(position))
        if element is None:
            log.warning("dispute 0x%s: the row is as near as honest rows are; its bond is lost", one.id.hex())
            return None
        proof = row_proof(trace.layout, seen, element, rows.shown(position))
        return calls.wrong_row(one.id, one.state, one.matter, one.shape, proof)

    def _by_step(self, one: Life, trace: SegmentTrace, seen: SeenTrace, choice: NamedNode) -> Call:
        """The first number of the word that differs follows from others than the accused has."""
        tensor, word = one.state.tensor, place_of(one.state, choice)
        own = trace.tensor(tensor).node(0, word)
        for number in range(WORD_NUMBERS):
            if own[4 * number : 4 * number + 4] != choice.node[4 * number : 4 * number + 4]:
                break
        place, rows = trace.layout.place(tensor, word, number), self._rows(one.matter)
        proof = step_proof(trace.layout, seen, place, number, self.weights.open, rows.entered)
        return calls.wrong_step(one.id, one.state, one.matter, one.shape, choice, proof)
