"""A session: one segment of one order in one role on this node, from its papers to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from troth.node.engine.interface import SessionKey
from troth.node.errors import OutOfOrder
from troth.node.orders.seat import Assignment
from troth.node.orders.telling import GrowingAnswer, Packed
from troth.node.orders.traces import StoredTrace
from troth.protocol.market.rows import HASH_BYTES, RowHashes
from troth.protocol.masks import TextRules
from troth.protocol.request import Request
from troth.protocol.tensors import row_size
from troth.protocol.tokens import Finish

INFERS, CHECKS, JUDGED, READ = 0, 1, 2, 3
"""The attempt under which an engine keeps the cache of who infers, and of who checks; and under which rows of another
node are kept that were rejected, and rows that a segment read."""


class GoesOn(Protocol):
    """What computes by itself for a session, as the loop of a node with the whole model does (module ``decoding``)."""

    failure: Exception | None

    async def stop(self) -> None:
        """The session is over."""


def rows_between(messages: Sequence[NDArray[Any]], start: int, end: int) -> list[NDArray[Any]]:
    """Rows ``start`` to ``end - 1`` of several messages, none of them copied."""
    found: list[NDArray[Any]] = []
    for rows in messages:
        if end <= 0:
            break
        if start < len(rows):
            found.append(rows[max(start, 0) : end])
        start, end = start - len(rows), end - len(rows)
    return found


@dataclass(slots=True)
class SessionRows:
    """The rows of a session, and the hash chains over them and over the rows of the segment before.

    ``own`` is the end of the chain of its rows, as far as they are hashed: the first ``chained`` of ``outputs``. Who
    moves it holds ``chaining`` (module ``chaining``). ``positions`` are the rows computed so far. ``bound`` are the
    tokens that segment 0 signed with its rows, as far as this segment is told them. ``begun_with`` is the number of
    positions of the first message, ``alone`` that from the first one on which came alone after it; ``cached`` that of
    the prompt's which the engine need not compute.
    """

    seat: Assignment
    own: RowHashes
    upstream: RowHashes
    inputs: list[NDArray[Any]] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    outputs: list[NDArray[Any]] = field(default_factory=list)
    positions: int = 0
    chained: int = 0
    begun_with: int = 0
    alone: int = 0
    cached: int = 0
    chaining: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def begin(cls, seat: Assignment) -> SessionRows:
        """None yet."""
        return cls(seat, RowHashes(seat.order_id, seat.index), RowHashes(seat.order_id, max(seat.index - 1, 0)))

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return row_size(self.seat.descriptor.hidden_size, self.seat.dtype)

    @property
    def sent_size(self) -> int:
        """Bytes of what travels of a row: itself, or its hash."""
        return HASH_BYTES if self.seat.sends_hashes else self.row_size

    def all_inputs(self) -> NDArray[Any]:
        """Tokens or rows of every position."""
        return np.concatenate(self.inputs)

    def all_outputs(self) -> NDArray[Any]:
        """The trace: every row computed."""
        return np.concatenate(self.outputs)

    def first_outputs(self, positions: int) -> NDArray[Any]:
        """The first rows computed; none beyond them is copied."""
        return np.concatenate(rows_between(self.outputs, 0, positions))

    def first_tokens(self, positions: int) -> list[int] | None:
        """The tokens that the first rows bind; None after the first segment."""
        if not self.seat.is_first:
            return None
        return [token for inputs in rows_between(self.inputs, 0, positions) for token in inputs.tolist()]

    def tokens_of(self, inputs: NDArray[Any]) -> list[int] | None:
        """The tokens that the rows computed from some inputs bind; None after the first segment."""
        return [int(token) for token in inputs] if self.seat.is_first else None

    def alone_with(self, count: int) -> int:
        """``alone`` after one more message of so many positions: a prompt comes in few messages, a text one by one, and
        nothing of a prompt after it."""
        return self.alone + count if self.alone or (count == 1 and self.begun_with) else 0

    def add(self, inputs: NDArray[Any], outputs: NDArray[Any]) -> None:
        """Positions were computed; their rows are not chained yet."""
        self.alone = self.alone_with(len(outputs))
        self.begun_with = self.begun_with or len(outputs)
        self.inputs.append(inputs)
        self.outputs.append(outputs)
        self.positions += len(outputs)

    def drop(self) -> None:
        """Free them; what is kept of them is on disk."""
        self.inputs, self.outputs, self.chained = [], [], 0


@dataclass(slots=True)
class SessionText:
    """The tokens that a session chose, by position, and who listens to them.

    ``request`` is there for the first and last segments, which are shown it. ``rules`` transform the logits of who
    chooses tokens, where the request says so.
    """

    request: Request | None
    emitted: dict[int, int] = field(default_factory=dict)
    rules: TextRules | None = None
    telling: GrowingAnswer = field(default_factory=GrowingAnswer)

    def emit(self, position: int, token: int, logprobs: Packed = UNSET) -> None:
        """A token was chosen at a position; whoever listens is told."""
        self.emitted[position] = token
        self.telling.add(token, self.finish(position, token), logprobs)

    def finish(self, position: int, token: int) -> Finish | None:
        """Why the text ends with the token chosen at a position; None if it goes on."""
        assert self.request is not None  # who chooses tokens is shown it
        if token in self.request.end_tokens:
            return "stop"
        return "length" if position == self.request.position_limit - 1 else None


@dataclass(slots=True)
class SessionCheck:
    """What a verifier was shown: the answer's ``tokens``, after which it ``committed``, and the ``claimed`` rows."""

    tokens: tuple[int, ...] = ()
    committed: bool = False
    claimed: list[NDArray[Any]] = field(default_factory=list)


@dataclass(slots=True)
class SegmentSession:
    """Grows with each Advance; handlers hold ``lock`` while they change it.

    ``trace`` is set once it is on disk, ``closed`` once nothing more is computed here. ``own_fault``: this node could
    not do what it was asked for, so that nobody else owes it for what is lost.
    """

    seat: Assignment
    touched: float
    began: float
    rows: SessionRows
    text: SessionText
    check: SessionCheck = field(default_factory=SessionCheck)
    trace: StoredTrace | None = None
    decoding: GoesOn | None = None
    closed: str = ""
    counted: bool = False
    own_fault: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def begin(cls, seat: Assignment, now: float) -> SegmentSession:
        """A session without any position."""
        return cls(seat, now, now, SessionRows.begin(seat), SessionText(seat.ordered))

    @property
    def key(self) -> SessionKey:
        """Name of the attention cache."""
        return SessionKey(self.seat.order_id, self.seat.index, INFERS if self.seat.infers else CHECKS)

    def require_alive(self) -> None:
        """Raise OutOfOrder where nothing more is done."""
        if self.closed:
            raise OutOfOrder(self.closed, self.rows.positions, "Ask for what was signed; order again for more.")

    def require_open(self) -> None:
        """Raise OutOfOrder where nothing more is computed."""
        self.require_alive()
        if self.trace is not None and self.seat.infers:
            raise OutOfOrder("the segment is concluded", self.rows.positions, "Ask for its result with Conclude.")

    async def end(self) -> None:
        """The session is over: nothing goes on by itself."""
        if self.decoding is not None:
            await self.decoding.stop()

    def drop_rows(self) -> None:
        """Free what a finished session holds; its trace is on disk."""
        self.rows.drop()
        self.check.claimed, self.decoding = [], None
