"""A session: one segment of one task at one attempt on this node, from its first message to its release."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import SessionKey
from troth.node.errors import BadInput, OutOfOrder
from troth.node.service.answer import Answer
from troth.node.service.seat import Seat
from troth.node.traces import StoredTrace
from troth.protocol import typed_data
from troth.protocol.rows import RowChain, signed_row, verify_rows
from troth.protocol.tensors import row_size
from troth.protocol.tokens import Finish
from troth.protocol.types import Address
from troth.protocol.wire_fields import RowSignature

if TYPE_CHECKING:
    from troth.node.orders.choosing import Packed
    from troth.node.service.decoding import Decoding


@dataclass(slots=True)
class Work:
    """Grows with each Forward; `trace` is set once it is committed. Handlers hold `lock` while they change it.

    `bound` are the tokens that segment 0 signed with its rows, as far as this segment is told them.
    """

    seat: Seat
    attempt: int
    touched: float
    began: float
    own_chain: RowChain
    upstream_chain: RowChain
    upstream_signer: Address | None = None
    countersignature: bytes = b""
    inputs: list[NDArray[Any]] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    outputs: list[NDArray[Any]] = field(default_factory=list)
    emitted: dict[int, int] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    trace: StoredTrace | None = None
    claimed_chain: RowChain | None = None
    claimed: list[NDArray[Any]] = field(default_factory=list)
    decoding: Decoding | None = None
    answer: Answer = field(default_factory=Answer)
    counted: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def begin(cls, seat: Seat, attempt: int, now: float) -> Work:
        """A session without any position."""
        own = RowChain(seat.task_id, seat.index, attempt)
        upstream = RowChain(seat.task_id, max(seat.index - 1, 0), attempt)
        return cls(seat, attempt, now, now, own, upstream)

    @property
    def key(self) -> SessionKey:
        """Name of the attention cache."""
        return SessionKey(self.seat.task_id, self.seat.index, self.attempt)

    @property
    def positions(self) -> int:
        """Rows computed so far."""
        return self.own_chain.position

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return row_size(self.seat.descriptor.hidden_size, self.seat.dtype)

    def all_inputs(self) -> NDArray[Any]:
        """Tokens or rows of every position."""
        return np.concatenate(self.inputs)

    def tokens_of(self, inputs: NDArray[Any]) -> list[int] | None:
        """The tokens that the rows computed from some inputs bind; None after the first segment."""
        return [int(token) for token in inputs] if self.seat.is_first else None

    def all_outputs(self) -> NDArray[Any]:
        """The trace: every row computed."""
        return np.concatenate(self.outputs)

    def note_token(self, position: int, token: int, logprobs: Packed, finished: Finish | None) -> None:
        """The token that the row at `position` chose; who listens to an answer of the whole model hears it."""
        self.emitted[position] = token
        if not (self.seat.is_first and self.seat.is_last):
            return
        first = len(self.seat.request.prompt_tokens)
        known = first + len(self.answer.tokens)
        before = self.all_inputs()[known : position + 1].tolist() if known <= position else []
        self.answer.add([*before, token], logprobs, finished, own=not before)

    async def end(self) -> None:
        """The session is over: nothing goes on by itself."""
        self.answer.end()
        if self.decoding is not None:
            await self.decoding.stop()

    def drop_rows(self) -> None:
        """Free the rows of a finished session; the trace is on disk."""
        self.inputs, self.outputs, self.claimed, self.decoding = [], [], [], None

    def slice_of(self, parts: list[NDArray[Any]], start: int, count: int) -> NDArray[Any]:
        """Some consecutive positions of what was stored."""
        rows: NDArray[Any] = np.concatenate(parts)[start : start + count]
        return rows

    def check_upstream(
        self,
        data: memoryview,
        tokens: Sequence[int] | None,
        signature: RowSignature | None,
        domain: typed_data.Domain,
    ) -> tuple[RowChain, Address]:
        """The upstream chain after these rows, and who signed it: always the same candidate of the segment before.

        Raises:
            BadInput: no signature, or not by a candidate of the segment before.
            InvalidRows, InvalidSignature: the rows are not those that were signed.
        """
        if signature is None:
            raise BadInput("rows came without their signer's signature", self.seat.index, "Forward the upstream one.")
        chain = self.upstream_chain
        signer = typed_data.recover(signed_row(chain, signature), domain, signature.signature)
        expected = (self.upstream_signer,) if self.upstream_signer else self.seat.assignment.candidates(chain.segment)
        if signer not in expected:
            raise BadInput("the rows are signed by another party", signer, f"Expected one of {expected}.")
        extended, _ = verify_rows(chain, data, self.row_size, signature, signer=signer, domain=domain, tokens=tokens)
        return extended, signer

    def check_countersignature(
        self, signature: RowSignature, countersignature: bytes | None, domain: typed_data.Domain
    ) -> None:
        """The scheduler's own signature over the row it forwarded; the last one is kept as evidence.

        Raises:
            BadInput: it is missing.
            InvalidSignature: somebody else made it.
        """
        if countersignature is None:
            raise BadInput("rows came without the scheduler's countersignature", self.seat.index, "Countersign them.")
        row = signed_row(self.upstream_chain, signature)
        typed_data.require_signer(row, domain, countersignature, self.seat.scheduler)
        self.countersignature = countersignature

    def require_open(self) -> None:
        """Raise OutOfOrder after the trace was committed."""
        if self.trace is not None:
            raise OutOfOrder("the trace is committed already", self.positions, "Start another attempt.")
