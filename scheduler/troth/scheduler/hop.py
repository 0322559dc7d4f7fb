"""One inferencer in a running pipeline: what it is asked, and what is believed of its answers.

An answer is forwarded at once. It is accepted beside that: hashes, chain and signature are checked and the rows stored
while the next node computes. Whoever forwards a bad row has lost a few milliseconds; the task never commits to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import msgspec

from troth.overlay.channel import Channel
from troth.overlay.errors import OverlayError
from troth.overlay.operator import Operator
from troth.protocol.announcement import announcement_to_wire
from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import NO_LOGPROBS, Logprobs, logprobs_from_bytes
from troth.protocol.rows import RowChain, verify_rows
from troth.protocol.tensors import TOKEN_BYTES, rows_from_bytes, tokens_from_bytes
from troth.protocol.types import Address, Hash32, Row
from troth.protocol.wire import Decode, Decoded, Forward, Frame, Rows
from troth.protocol.wire_fields import DECODE_LIMIT, RowSignature
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.task_errors import HopFailed
from troth.scheduler.timing import Breakdown
from troth.scheduler.trace_store import Link, TaskTraces

log = logging.getLogger(__name__)


class Hop:
    """Segment `segment` of one attempt, served by `operator` over `channel`."""

    def __init__(
        self,
        task: AdmittedTask,
        segment: int,
        attempt: int,
        *,
        operator: Address,
        channel: Channel,
        scheduler: Operator,
    ) -> None:
        self._task = task
        self.segment = segment
        self._attempt = attempt
        self.operator = operator
        self._channel = channel
        self._scheduler = scheduler
        self._chain = RowChain(task.task_id, segment, attempt)
        self._introduced = False
        self._doubted = False
        self.latency = 0.0
        self.decoding: float | None = None
        """Mean seconds of the answers to one position alone, the way included; None as long as there was none."""
        self._decoded = 0
        self._alone_since: float | None = None

    async def forward(
        self, start: int, count: int, payload: bytes | memoryview, upstream: Link | None, *, emit: bool, timeout: float
    ) -> tuple[Rows, Frame]:
        """Ask for `count` positions from `start`; raises HopFailed, whatever the reason."""
        request = self._request(start, count, upstream, emit=emit)
        header, prefix = request
        frame = await self._ask(header, prefix + bytes(payload) if prefix else payload, timeout)
        self._note_decoding(count)
        rows = frame.header
        if not isinstance(rows, Rows) or rows.start != start or rows.count != count or (emit and rows.token is None):
            raise HopFailed(self.segment, self.operator, f"an answer to another question: {type(rows).__name__}")
        if rows.row.position != start + count - 1:
            # Before it is countersigned: two countersigned rows of one position would convict this scheduler.
            raise HopFailed(self.segment, self.operator, f"a row signed for position {rows.row.position}")
        self._introduced = True
        return rows, frame

    def _note_decoding(self, count: int) -> None:
        """The first message does not count: the node checks the announcement, too."""
        if count == 1 and self._introduced:
            self._decoded += 1
            mean = self.decoding or 0.0
            self.decoding = mean + (self.latency - mean) / self._decoded

    def _note_positions(self, count: int, asked_at: float) -> None:
        """What it computed alone, by the time since it was first asked: answers may hold what was ready before."""
        self._alone_since = self._alone_since or asked_at
        self._decoded += count
        self.decoding = (time.perf_counter() - self._alone_since) / self._decoded

    async def decode(self, start: int, timeout: float) -> tuple[Decoded, Frame]:
        """Ask the only segment for what it computed alone from `start` on; raises HopFailed, whatever the reason."""
        asked = msgspec.UNSET if self._task.logprobs == NO_LOGPROBS else self._task.logprobs
        before = time.perf_counter()
        header = Decode(self._task.task_id, self.segment, self._attempt, start, DECODE_LIMIT, asked)
        frame = await self._ask(header, b"", timeout)
        decoded = frame.header
        if not isinstance(decoded, Decoded) or decoded.start != start:
            raise HopFailed(self.segment, self.operator, f"an answer to another question: {type(decoded).__name__}")
        if decoded.row.position != start + decoded.count - 1:
            raise HopFailed(self.segment, self.operator, f"a row signed for position {decoded.row.position}")
        if len(frame.payload) != decoded.count * (TOKEN_BYTES + self._task.row_bytes):
            raise HopFailed(self.segment, self.operator, f"{len(frame.payload)} bytes for {decoded.count} positions")
        self._note_positions(decoded.count, before)
        return decoded, frame

    def chosen(self, decoded: Decoded, frame: Frame) -> tuple[int, ...]:
        """The tokens in an answer to `decode`; raises HopFailed where one is outside the vocabulary, or their log
        probabilities are not as many."""
        if len(decoded.logprobs) not in (0, decoded.count):
            raise HopFailed(self.segment, self.operator, f"{len(decoded.logprobs)} log probabilities")
        data = frame.payload[: decoded.count * TOKEN_BYTES]
        try:
            return tokens_from_bytes(data, decoded.count, self._task.model.vocabulary)
        except ProtocolError as error:
            raise HopFailed(self.segment, self.operator, error) from error

    async def _ask(self, header: Forward | Decode, payload: bytes | memoryview, timeout: float) -> Frame:
        before = time.perf_counter()
        try:
            frame = await self._channel.request(header, payload, timeout)
        except (OverlayError, ProtocolError) as error:
            raise HopFailed(self.segment, self.operator, error) from error
        self.latency = time.perf_counter() - before
        return frame

    def _request(self, start: int, count: int, upstream: Link | None, *, emit: bool) -> tuple[Forward, bytes]:
        part, prefix = None, b""
        if not self._introduced:
            part, prefix = announcement_to_wire(self._task.announcement(self.segment))
        header = Forward(
            task_id=self._task.task_id,
            segment=self.segment,
            attempt=self._attempt,
            start=start,
            count=count,
            kind="tokens" if upstream is None else "rows",
            emit=emit,
            upstream=None if upstream is None else upstream.row,
            countersignature=None if upstream is None else upstream.countersignature,
            announcement=part,
            request_size=len(prefix),
            logprobs=self._task.logprobs if emit and self._task.logprobs != NO_LOGPROBS else msgspec.UNSET,
        )
        return header, prefix

    def countersign(self, rows: Rows | Decoded) -> Link:
        """The scheduler's signature over the row that the answer ends with, needed before it can be forwarded."""
        return Link(rows.count, rows.row, self._scheduler.sign(self._row(rows.row)))

    def accept(self, data: memoryview, tokens: Sequence[int], link: Link, traces: TaskTraces, spent: Breakdown) -> None:
        """Check and store rows that were forwarded already, computed from `tokens`; raises HopFailed if they should
        not have been. States that are no numbers are this hop's fault too, not that of the next one, which refuses
        them."""
        with spent.spent("checking"):
            try:
                rows_from_bytes(data, len(tokens), self._task.model.hidden_size, self._task.dtype)
                self._chain, _ = verify_rows(
                    self._chain,
                    data,
                    self._task.row_bytes,
                    link.row,
                    signer=self.operator,
                    domain=self._scheduler.domain,
                    tokens=tokens if self.segment == 0 else None,
                )
            except ProtocolError as error:
                raise HopFailed(self.segment, self.operator, error) from error
        with spent.spent("storing"):
            traces.append(self.segment, self._attempt, data, link)

    def logprobs(self, packed: bytes | msgspec.UnsetType, token: int) -> Logprobs | None:
        """What an answer says of its token, if that was asked for; None where it says nothing that could be true.

        Its rows stand all the same: log probabilities are nobody's money, so junk in them may not cost the attempt.
        """
        if self._task.logprobs == NO_LOGPROBS or isinstance(packed, msgspec.UnsetType):
            return None
        try:
            return logprobs_from_bytes(packed, token, count=self._task.logprobs, vocabulary=self._task.model.vocabulary)
        except ProtocolError as error:
            if not self._doubted:
                log.warning("%s sent log probabilities that cannot be, left out: %s", self.operator, error.what)
            self._doubted = True
            return None

    def _row(self, signature: RowSignature) -> Row:
        return Row(
            self._task.task_id,
            self.segment,
            self._attempt,
            signature.position,
            Hash32(signature.row_hash),
            Hash32(signature.previous),
        )
