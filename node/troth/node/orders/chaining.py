"""Rows of sessions on their way to be signed: hashed, chained and signed in a thread, those of many sessions at once.

A session is computed ahead of its chain. What is hashed twice, since an answer was lost on its way, gives the same
chain: rows and tokens are kept as they were computed. Nothing is signed whose rows hold NaN or infinity. Where row
hashes travel in place of rows, they are those that were hashed for the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.chain.rounds import rounds
from troth.node.errors import OutOfOrder
from troth.node.orders.session import SegmentSession, rows_between
from troth.protocol.errors import ProtocolError, TrothError
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.signed import Row
from troth.protocol.tensors import Dtype, rows_as_bytes
from troth.protocol.wire_fields import RowSignature
from troth.transport.event_loop import LOOP_BYTES, beside
from troth.transport.identity import Operator

FEW = 4
"""Texts whose short rows are signed on the loop: a tenth of a millisecond each."""


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """Rows that a chain does not have yet, and all that a thread needs to add them."""

    known: RowHashes
    outputs: Sequence[NDArray[Any]]
    tokens: Sequence[int] | None
    dtype: Dtype
    row_size: int
    as_hashes: bool

    @classmethod
    def of(cls, session: SegmentSession, known: RowHashes, first: int, end: int) -> RowsAhead:
        """Those in the messages ``first`` to ``end - 1`` of a session, after those ``known`` up to there."""
        tokens = None
        if session.seat.is_first:
            tokens = [token for inputs in session.rows.inputs[first:end] for token in inputs.tolist()]
        return cls.over(session, known, session.rows.outputs[first:end], tokens)

    @classmethod
    def over(
        cls, session: SegmentSession, known: RowHashes, outputs: Sequence[NDArray[Any]], tokens: Sequence[int] | None
    ) -> RowsAhead:
        """Rows of a session that were computed from ``tokens``, whether they are in it yet or not."""
        return cls(known, outputs, tokens, session.seat.dtype, session.rows.row_size, session.seat.sends_hashes)

    @property
    def size(self) -> int:
        """Bytes to hash."""
        return sum(one.nbytes for one in self.outputs)

    def extended(self) -> tuple[RowHashes, Row, memoryview]:
        """The chain after them, the last of them, and what travels; raises WireError for rows that are no numbers."""
        rows = self.outputs[0] if len(self.outputs) == 1 else np.concatenate(self.outputs)
        data = rows_as_bytes(rows, self.dtype)
        hashes = self.known.hashes(data, self.row_size, self.tokens)
        sent = memoryview(b"".join(hashes)) if self.as_hashes else data
        return *self.known.extend_hashed(hashes), sent


@dataclass(frozen=True, slots=True)
class SignedRows:
    """Rows or their hashes, as they travel, and this node's signature over the last row, which covers all before it."""

    data: memoryview
    row: RowSignature


def signed_row(operator: Operator, row: Row) -> RowSignature:
    """A node's signature over the last row of an answer."""
    return RowSignature(row.position, row.row_hash, row.previous, operator.sign(row))


async def chain_up(session: SegmentSession) -> None:
    """Bring a session's chain to its last row; raises WireError for rows that are no numbers."""
    await chained_to(session, session.rows.positions)


async def chained_to(session: SegmentSession, positions: int) -> RowHashes:
    """The end of a session's chain after its first rows. What is not hashed yet is hashed, and no row twice, unless the
    chain is longer; raises WireError for rows that are no numbers."""
    rows = session.rows
    async with rows.chaining:
        if rows.own.position == positions:
            return rows.own
        end, count = rows.chained, rows.own.position
        while count < positions:
            count += len(rows.outputs[end])
            end += 1
        if count == positions and end > rows.chained:
            ahead = RowsAhead.of(session, rows.own, rows.chained, end)
            rows.own, _, _ = await beside(ahead.size, ahead.extended)
            rows.chained = end
            return rows.own
        begin = RowHashes(session.seat.order_id, session.seat.index)
        first = rows_between(rows.outputs, 0, positions)
        ahead = RowsAhead.over(session, begin, first, rows.first_tokens(positions))
        found, _, _ = await beside(ahead.size, ahead.extended)
        return found


async def upstream_to(session: SegmentSession, positions: int) -> RowHashes:
    """The end of the chain of the segment before, after its first rows, which were checked as they came."""
    seat, rows = session.seat, session.rows
    if positions == rows.upstream.position:
        return rows.upstream
    begin = RowHashes(seat.order_id, seat.index - 1)
    tokens = rows.bound[:positions] if seat.index == 1 else None
    ahead = RowsAhead.over(session, begin, rows_between(rows.inputs, 0, positions), tokens)
    found, _, _ = await beside(ahead.size, ahead.extended)
    return found


async def signed_ranges(
    operator: Operator, ranges: Sequence[tuple[SegmentSession, int, int]]
) -> list[SignedRows | TrothError]:
    """Rows ``start`` to ``end - 1`` of several sessions that decode alone, each signed; in one thread for all of them,
    unless they are few and short.

    In the place of a session whose rows are no numbers, or were freed meanwhile, is the error.
    """
    async with AsyncExitStack() as held:
        # In one order everywhere, so that two answers never wait for each other.
        for session in sorted((one[0] for one in ranges), key=lambda one: one.seat.order_id):
            await held.enter_async_context(session.rows.chaining)
        works: list[_Range | TrothError] = []
        for one in ranges:
            await rounds.give_way()
            works.append(_Range.of(*one) if one[0].rows.outputs else _over(one[0]))
        size = sum(work.ahead.size for work in works if isinstance(work, _Range))
        # A thread costs more to wake than a few short texts take.
        outcomes = await beside(size if len(works) <= FEW else LOOP_BYTES + 1, _all_signed, operator, works)
        found: list[SignedRows | TrothError] = []
        for (session, _, end), work, outcome in zip(ranges, works, outcomes, strict=True):
            if isinstance(outcome, TrothError):
                found.append(outcome)
                continue
            own, signed = outcome
            if end > session.rows.own.position and isinstance(work, _Range):
                session.rows.own, session.rows.chained = own, work.end
            found.append(signed)
        return found


@dataclass(frozen=True, slots=True)
class _Range:
    """``ahead`` ends with the message before ``end``; its first ``skip`` rows were asked for before."""

    ahead: RowsAhead
    skip: int
    end: int

    @classmethod
    def of(cls, session: SegmentSession, start: int, end: int) -> _Range:
        if start == session.rows.own.position:
            last = session.rows.chained + end - start  # who decodes adds one row at a time
            return cls(RowsAhead.of(session, session.rows.own, session.rows.chained, last), 0, last)
        count, last = 0, 0
        while count < end:
            count += len(session.rows.outputs[last])
            last += 1
        begin = RowHashes(session.seat.order_id, session.seat.index)
        return cls(RowsAhead.of(session, begin, 0, last), start, last)


_Outcome = tuple[RowHashes, SignedRows] | TrothError


def _over(session: SegmentSession) -> TrothError:
    return OutOfOrder("the segment is concluded and its rows are freed", session.rows.positions, "Send Conclude.")


def _all_signed(operator: Operator, works: Sequence[_Range | TrothError]) -> list[_Outcome]:
    return [work if isinstance(work, TrothError) else _signed(operator, work) for work in works]


def _signed(operator: Operator, work: _Range) -> _Outcome:
    try:
        own, last, data = work.ahead.extended()
    except ProtocolError as error:
        return error
    size = len(data) // sum(len(one) for one in work.ahead.outputs)
    return own, SignedRows(data[work.skip * size :], signed_row(operator, last))
