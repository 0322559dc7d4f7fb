"""One verifier of one segment: it computes the trace again, commits to it, is shown the rows, says what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.ballots import Ballot, CastBallot, require_ballot
from troth.protocol.market.leaves import ShownTraces, shows_work
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Opinion, Promise, Result, TraceCommitment, Verdict
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Address
from troth.protocol.wire import Received, Rows
from troth.protocol.wire_market import TRACES_LIMIT, Advance, Hidden, Judge, Judged, Poll, Polled, Recommit
from troth.scheduler.errors import TaskFailed
from troth.scheduler.orders.context import OrderSession, SchedulerContext
from troth.scheduler.orders.papers import encoded_check, pay
from troth.scheduler.orders.pipeline import chunk_of
from troth.scheduler.orders.rows_kept import OrderRows

_LIMIT = 1 << 12
_OPINIONS = (Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL)


class DrawnVerifier:
    """What a drawn verifier is asked; every question may be asked again and is answered with the same."""

    def __init__(
        self,
        context: SchedulerContext,
        session: OrderSession,
        segment: int,
        kept: OrderRows,
        *,
        verifier: Address,
        promised: Signed[Promise],
    ) -> None:
        self._context = context
        self._session = session
        self._segment = segment
        self._promised = promised
        self._kept = kept
        self.verifier = verifier

    @property
    def _result(self) -> Result:
        return self._session.history.results[self._segment]

    @property
    def _rows(self) -> int:
        assert self._session.history.answered is not None
        return self._session.history.answered.rows

    async def commit(self) -> Signed[TraceCommitment]:
        """One prefill over prompt and answer, then the commitment; raises OverlayError, ProtocolError, TaskFailed."""
        channel, timeout = self._context.peers.channel(self.verifier), self._context.waits.check
        papers, request = encoded_check(self._session, self._segment, pay(self._context, self.verifier, self._promised))
        links = self._kept.links(self._segment - 1) if self._segment else {}
        for start, count in self._chunks():
            header = Advance(
                order=self._session.order_id,
                segment=self._segment,
                role="check",
                start=start,
                count=count,
                upstream=links[start + count - 1] if self._segment else None,
                papers_size=len(papers),
                request_size=len(request),
            )
            sent = b"".join((papers, request, self._inputs(start, count)))
            answer = (await channel.request(header, sent, timeout)).header
            if not isinstance(answer, (Received, Rows)):
                raise TaskFailed("The verifier answered another question", type(answer).__name__)
            papers = request = b""
        return await self._recommit()

    async def _recommit(self) -> Signed[TraceCommitment]:
        tokens = self._answer()
        shown = tokens_to_bytes(tokens) if self._is_last else b""
        header = Recommit(self._session.order_id, self._segment, self._rows, len(tokens))
        channel = self._context.peers.channel(self.verifier)
        frame = await channel.request(header, shown, self._context.waits.check)
        if not isinstance(frame.header, Hidden):
            raise TaskFailed("The verifier did not commit", type(frame.header).__name__)
        signed = canonical.decode(Signed[TraceCommitment], frame.payload, _LIMIT)
        message = signed.require(self._context.operator.domain, self.verifier)
        wanted = (self._session.order_id, self._segment, typed_data.struct_hash(self._result))
        if (message.order, message.segment, message.result) != wanted:
            raise TaskFailed("The verifier committed for another place or result", message.segment)
        return signed

    async def judge(self, commitment: Signed[TraceCommitment]) -> tuple[Signed[Verdict], bool]:
        """The verdict over the node's rows, which it is sent only now, and whether it is owed as it is.

        A yes is, and what comes with traces that prove the work. Raises as ``commit``.
        """
        channel, timeout = self._context.peers.channel(self.verifier), self._context.waits.check
        last = self._kept.links(self._segment)[self._rows - 1]
        for start, count in self._chunks():
            row = last if start + count == self._rows else None
            header = Judge(self._session.order_id, self._segment, self._rows, start, count, row)
            frame = await channel.request(header, self._kept.rows(self._segment, start, count), timeout)
            if isinstance(frame.header, Judged):
                size = len(frame.payload) - frame.header.traces
                signed = self._checked(canonical.decode(Signed[Verdict], frame.payload[:size], _LIMIT), commitment)
                return signed, await asyncio.to_thread(self._is_owed, signed.message, frame.payload[size:])
            if not isinstance(frame.header, Received):
                raise TaskFailed("The verifier answered another question", type(frame.header).__name__)
        raise TaskFailed("The verifier was sent all rows and gave no verdict")

    def _is_owed(self, verdict: Verdict, shown: bytes | memoryview) -> bool:
        if verdict.opinion == Opinion.ACCEPT or not len(shown):
            return verdict.opinion == Opinion.ACCEPT
        try:
            traces = canonical.decode(ShownTraces, shown, TRACES_LIMIT)
            return shows_work(verdict, self._result, traces, self.verifier, self._session.offer.rules)
        except ProtocolError:
            return False  # its word counts all the same

    async def poll(self, ring: Sequence[bytes], verdict: Verdict) -> bytes:
        """Its ring signature over the opinion of its verdict; raises as ``commit``."""
        channel = self._context.peers.channel(self.verifier)
        header = Poll(self._session.order_id, self._segment)
        frame = await channel.request(header, b"".join(ring), self._context.waits.check)
        if not isinstance(frame.header, Polled):
            raise TaskFailed("The verifier did not cast a ballot", type(frame.header).__name__)
        ballot = Ballot(verdict.order, verdict.segment, verdict.result, verdict.opinion)
        cast = CastBallot(Opinion(verdict.opinion), bytes(frame.payload))
        await asyncio.to_thread(require_ballot, cast, ring, ballot, self._context.operator.domain)
        return cast.signature

    def _checked(self, signed: Signed[Verdict], commitment: Signed[TraceCommitment]) -> Signed[Verdict]:
        verdict = signed.require(self._context.operator.domain, self.verifier)
        wanted = (self._session.order_id, self._segment, typed_data.struct_hash(self._result))
        if (verdict.order, verdict.segment, verdict.result) != wanted:
            raise TaskFailed("The verifier judged another result", verdict.segment)
        if verdict.commitment != commitment.message.commitment:
            # It has seen the rows since: what it names now may be a copy of them.
            raise TaskFailed("The verdict names another commitment", verdict.segment)
        if verdict.opinion not in _OPINIONS:
            raise TaskFailed("A verifier accepts, rejects or cannot tell", verdict.opinion)
        return signed

    @property
    def _is_last(self) -> bool:
        return self._segment == self._session.history.segments - 1

    def _answer(self) -> Sequence[int]:
        tokens = self._session.history.tokens
        if tokens is None:
            raise ProtocolError("The answer is kept no longer", None, "Checks end with the time for them.")
        return tokens

    def _inputs(self, start: int, count: int) -> bytes:
        """Tokens for segment 0, both for segment 1 (the rows bind them), rows after that."""
        sequence = [*self._session.request.prompt_tokens, *self._answer()]
        tokens = tokens_to_bytes(sequence[start : start + count]) if self._segment <= 1 else b""
        if not self._segment:
            return tokens
        return tokens + self._kept.rows(self._segment - 1, start, count)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """The same cuts as in the prompt's prefill, so that each ends at a row that the node signed."""
        size = chunk_of(self._session)
        for start in range(0, self._rows, size):
            yield start, min(size, self._rows - start)
