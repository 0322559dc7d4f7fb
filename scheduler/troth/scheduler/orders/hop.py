"""The node of one segment of a running order: what it is asked, and what is believed of its answers.

An answer is forwarded at once. It is accepted beside that: hashes, chain and signature are checked and the rows stored
while the next node computes. Whoever forwards a bad row has lost a few milliseconds; the order ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import msgspec

from troth.protocol.errors import ProtocolError, WireError
from troth.protocol.logprobs import NO_LOGPROBS, Logprobs, logprobs_from_bytes
from troth.protocol.market.rows import HASH_BYTES, RowHashes, verify_hashes, verify_rows
from troth.protocol.tensors import rows_from_bytes
from troth.protocol.wire import Frame, Rows
from troth.protocol.wire_decoding import WantedText, WrittenPart
from troth.protocol.wire_fields import Message, RowSignature, VeiledRow
from troth.protocol.wire_market import Advance, Conclude, Concluded
from troth.scheduler.errors import NodeFailed
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.papers import inference_papers
from troth.scheduler.orders.rows_kept import OrderRows
from troth.transport.channel import Channel
from troth.transport.errors import OverlayError
from troth.transport.event_loop import beside

log = logging.getLogger(__name__)


class Hop:
    """One segment of one order."""

    def __init__(self, context: SchedulerContext, session: OrderSession, segment: int, kept: OrderRows) -> None:
        self._context = context
        self._session = session
        self._kept = kept
        self.segment = segment
        self.node = session.nodes[segment]
        self.chain = RowHashes(session.order_id, segment)
        self._introduced = False
        self._doubted = False
        self.latency = 0.0
        self.decoding: float | None = None
        """Mean seconds of the answers to one position alone, the way included; None as long as there was none."""
        self._decoded = 0
        self._alone_since: float | None = None

    async def advance(
        self,
        start: int,
        count: int,
        payload: bytes | memoryview,
        upstream: RowSignature | VeiledRow | None,
        *,
        emit: bool,
        timeout: float,
        slow: float,
    ) -> tuple[Rows, Frame]:
        """Ask for ``count`` positions from ``start``; raises NodeFailed, whatever the reason."""
        papers, request = (
            (b"", b"") if self._introduced else inference_papers(self._context, self._session, self.segment)
        )
        header = Advance(
            order=self._session.order_id,
            segment=self.segment,
            role="infer",
            start=start,
            count=count,
            emit=emit,
            upstream=upstream if isinstance(upstream, RowSignature) else None,
            veiled=upstream if isinstance(upstream, VeiledRow) else msgspec.UNSET,
            papers_size=len(papers),
            request_size=len(request),
            logprobs=self._alternatives() if emit else msgspec.UNSET,
        )
        frame = await self._ask(header, b"".join((papers, request, payload)) if papers else payload, timeout, slow)
        if count == 1 and self._introduced:
            self._decoded += 1
            mean = self.decoding or 0.0
            self.decoding = mean + (self.latency - mean) / self._decoded
        rows = frame.header
        if not isinstance(rows, Rows) or (rows.start, rows.count) != (start, count) or emit != (rows.token is not None):
            raise self.failed(f"an answer to another question: {type(rows).__name__}")
        if rows.row.position != start + count - 1:
            raise self.failed(f"a row signed for position {rows.row.position}")
        self._introduced = True
        return rows, frame

    async def proceed(self, start: int, timeout: float, slow: float) -> WrittenPart:
        """What the only segment computed alone from ``start`` on; raises NodeFailed. See ``GenerationPatience``."""
        before = time.perf_counter()
        alternatives = None if self._session.alternatives == NO_LOGPROBS else self._session.alternatives
        wanted = WantedText(self._session.order_id, start, alternatives)
        try:
            part = await self._context.peers.texts(self.node).next(wanted, timeout, slow)
        except (OverlayError, ProtocolError) as error:
            raise self.failed(error) from error
        if part.row_bytes != self._session.offer.sent_bytes:
            raise self.failed(f"rows of {part.row_bytes} bytes, not {self._session.offer.sent_bytes}")
        if max(part.tokens) >= self._session.offer.model.vocabulary:
            raise self.failed(f"token {max(part.tokens)} of a vocabulary of {self._session.offer.model.vocabulary}")
        now = time.perf_counter()
        self.latency = now - before
        self._alone_since = self._alone_since or before
        self._decoded += len(part.tokens)
        self.decoding = (now - self._alone_since) / self._decoded
        return part

    async def took_all(self, start: int) -> bool:
        """Whether the only segment gave nothing from ``start`` on, so that it can be concluded there."""
        return await self._context.peers.texts(self.node).took_all(self._session.order_id, start)

    async def conclude(self, positions: int, written: int, payload: bytes, timeout: float) -> Frame:
        """Ask for the result of ``positions`` rows; raises NodeFailed."""
        header = Conclude(self._session.order_id, self.segment, positions, written)
        return await self._ask(header, payload, timeout)

    def keep_last(self, header: Message) -> None:
        """Keep the last row that came with a result, and imprints, which were checked; a node that shows no row, or
        another, is not believed by clients."""
        offer = self._session.offer
        if isinstance(header, Concluded) and offer.sends_hashes and len(header.last_row) == offer.row_bytes:
            self._kept.append_last(self.segment, header.last_row)
        if isinstance(header, Concluded) and header.imprints:
            self._kept.append_imprints(self.segment, header.imprints)

    async def accept(self, data: bytes | memoryview, tokens: Sequence[int], row: RowSignature) -> None:
        """Check and store rows that were forwarded already, computed from ``tokens``; raises NodeFailed if they should
        not have been. States that are no numbers are this node's fault, not that of the next one, which refuses
        them. Of hashes only the chain and its signature can be checked: whether they are those of this text is what a
        check finds out."""
        try:
            self.chain = await beside(len(data), self._verified, data, tokens, row)
        except ProtocolError as error:
            raise self.failed(error) from error
        # On the loop: a thread that is still writing when the order ends would find another file under its descriptor.
        self._kept.append(self.segment, data, row)

    def _verified(self, data: bytes | memoryview, tokens: Sequence[int], row: RowSignature) -> RowHashes:
        offer, domain = self._session.offer, self._context.operator.domain
        if offer.sends_hashes:
            if len(data) != len(tokens) * HASH_BYTES:
                raise WireError("A whole model's exact class sends row hashes", len(data), "Run this node's version.")
            return verify_hashes(self.chain, data, row, signer=self.node, domain=domain)
        rows_from_bytes(data, len(tokens), offer.rules.hidden_size, offer.dtype)
        return verify_rows(
            self.chain,
            data,
            offer.row_bytes,
            row,
            signer=self.node,
            domain=domain,
            tokens=tokens if self.segment == 0 else None,
        )

    def logprobs(self, packed: bytes | msgspec.UnsetType, token: int) -> Logprobs | None:
        """What an answer says of its token, if that was asked for; None where it says nothing that could be true.

        Its rows stand all the same: log probabilities are nobody's money.
        """
        if self._session.alternatives == NO_LOGPROBS or isinstance(packed, msgspec.UnsetType):
            return None
        vocabulary = self._session.offer.model.vocabulary
        try:
            return logprobs_from_bytes(packed, token, count=self._session.alternatives, vocabulary=vocabulary)
        except ProtocolError as error:
            if not self._doubted:
                log.warning("%s sent log probabilities that cannot be, left out: %s", self.node, error.what)
            self._doubted = True
            return None

    def failed(self, cause: object) -> NodeFailed:
        """This node's failure."""
        return NodeFailed(self.segment, self.node, cause)

    def _alternatives(self) -> int | msgspec.UnsetType:
        asked = self._session.alternatives
        return msgspec.UNSET if asked == NO_LOGPROBS else asked

    async def _ask(
        self, header: Advance | Conclude, payload: bytes | memoryview, timeout: float, slow: float = 0.0
    ) -> Frame:
        try:
            channel = self._context.peers.channel(self.node)
            # The admission names this node, and there can be no second one: so a connection that is about to be tried
            # again is awaited, as long as an answer would be.
            await channel.open(wait=timeout)
            before = time.perf_counter()
            frame = await _answer(channel, header, payload, timeout, slow)
        except (OverlayError, ProtocolError) as error:
            self._context.node_tabs.note_refusal(self.node, error)
            raise self.failed(error) from error
        self.latency = time.perf_counter() - before
        return frame


async def _answer(
    channel: Channel, header: Advance | Conclude, payload: bytes | memoryview, timeout: float, slow: float
) -> Frame:
    """The node's answer within ``timeout`` seconds, or within ``slow`` where it gives signs of life meanwhile."""
    if slow <= timeout:
        return await channel.request(header, payload, timeout)
    asking = asyncio.ensure_future(channel.request(header, payload, slow))
    try:
        while not (await asyncio.wait([asking], timeout=timeout))[0]:
            await channel.round_trip(timeout)
        return asking.result()
    finally:
        asking.cancel()
