"""The token loop of an order: states relayed from segment to segment, tokens handed out as they come.

There is one attempt. A node that signed rows and fails has ended its order: a second chain of rows would convict it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from msgspec import UNSET, UnsetType

from troth.protocol.errors import ProtocolError
from troth.protocol.logprobs import Logprobs
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.tokens import finish_reason
from troth.protocol.wire import Rows
from troth.protocol.wire_fields import RowSignature, VeiledRow
from troth.scheduler.errors import NodeFailed
from troth.scheduler.nodes.patience import MESSAGE_BYTES, Finish, GenerationPatience
from troth.scheduler.orders.context import OrderSession
from troth.scheduler.orders.hop import Hop
from troth.scheduler.orders.veiling import Veil

Packed = bytes | UnsetType
Answered = TypeVar("Answered")
OnToken = Callable[[int, int, Logprobs | None], None]


@dataclass(frozen=True, slots=True)
class _UncheckedAnswer:
    """What a node has answered and nobody has checked yet: rows computed from ``inputs``, tokens chosen by the last of
    them, and why the very last token ends the text."""

    hop: Hop
    inputs: Sequence[int]
    data: bytes | memoryview
    row: RowSignature
    chosen: Sequence[int]
    logprobs: Sequence[Packed]
    finished: Finish | None


class PipelineRun:
    """The nodes of one order, first segment first. ``on_token`` gets each token once the rows behind it are checked.

    ``no_more`` is set where its client wants no more: the text ends with what there is then.
    """

    def __init__(
        self,
        session: OrderSession,
        hops: Sequence[Hop],
        on_token: OnToken,
        patience: GenerationPatience,
        veil: Veil | None = None,
    ) -> None:
        self._session = session
        self._hops = hops
        self._on_token = on_token
        self._patience = patience
        self._veil = veil
        self.no_more = asyncio.Event()
        self._unchecked: _UncheckedAnswer | None = None
        self._failure: NodeFailed | None = None
        self.tokens: list[int] = []

    async def run(self) -> Finish:
        """Prefill, then decode to the end; raises NodeFailed."""
        if self._veil is not None:
            await self._veil.draw()
        rows = await self._prefill(self._session.request.prompt_tokens)
        finished = await (self._decode_alone(rows) if len(self._hops) == 1 else self._decode_relayed(rows))
        await self._check_last_answer()
        return finished

    async def _prefill(self, sequence: Sequence[int]) -> Rows:
        size = chunk_of(self._session)
        for start in range(0, len(sequence), size):
            last = start + size >= len(sequence)
            part = sequence[start : start + size]
            rows = await self._pass(start, part, emit=last, timeout=self._patience.prefill)
        return rows

    async def _decode_relayed(self, rows: Rows) -> Finish:
        """Token by token through all segments."""
        while rows.finished is None and not self.no_more.is_set():
            position = len(self._session.request.prompt_tokens) + len(self.tokens)
            assert rows.token is not None  # Hop.advance refuses an answer without the token that was asked for
            rows = await self._pass(position, [rows.token], emit=True, timeout=self._patience.token)
        return rows.finished or "length"

    async def _decode_alone(self, rows: Rows) -> Finish:
        """The only segment feeds itself; whatever it has when it is asked comes in one answer."""
        hop, finished, start = self._hops[0], rows.finished, rows.start + rows.count
        assert rows.token is not None  # as above
        last = rows.token
        while finished is None and not (self.no_more.is_set() and await hop.took_all(start)):
            part = await self._checking_meanwhile(hop.proceed(start, self._patience.token, self._patience.slow))
            chosen = part.tokens
            logprobs = part.logprobs or [UNSET] * len(chosen)
            self._unchecked = _UncheckedAnswer(
                hop, (last, *chosen[:-1]), part.rows, part.row, chosen, logprobs, part.finished
            )
            await self._end_if_failed()
            last, finished, start = chosen[-1], part.finished, start + len(chosen)
        return finished or "length"

    async def _pass(self, start: int, tokens: Sequence[int], *, emit: bool, timeout: float) -> Rows:
        """Once through all segments; the answer of each node is checked while the next one works."""
        count, sent = len(tokens), tokens_to_bytes(tokens)
        payload: bytes | memoryview = sent
        upstream: RowSignature | VeiledRow | None = None
        until = time.monotonic() + self._patience.slow
        for hop in self._hops:
            emits = emit and hop is self._hops[-1]
            # For all of them together: a client waits for a token, and not for a node.
            slow = max(until - time.monotonic(), 0.0)
            asking = hop.advance(start, count, payload, upstream, emit=emits, timeout=timeout, slow=slow)
            rows, frame = await self._checking_meanwhile(asking)
            chosen = () if rows.token is None else (rows.token,)
            self._unchecked = _UncheckedAnswer(
                hop, tokens, frame.payload, rows.row, chosen, (rows.logprobs,), rows.finished
            )
            await self._end_if_failed()
            upstream = rows.row if hop is self._hops[-1] else await self._forwarded(hop, rows.row)
            # Rows of segment 0 are signed together with their tokens, so segment 1 is sent both.
            payload = frame.payload if hop.segment else sent + frame.payload
        return rows

    async def _forwarded(self, hop: Hop, row: RowSignature) -> RowSignature | VeiledRow:
        """A signed row as the next segment is shown it."""
        if self._veil is None:
            return row
        try:
            return await asyncio.to_thread(self._veil.shown, hop.chain.signed(row), row)
        except ProtocolError as error:
            raise hop.failed(error) from error

    async def _checking_meanwhile(self, request: Coroutine[None, None, Answered]) -> Answered:
        """Ask a node, and check the answer before while it works."""
        asking = asyncio.create_task(request)
        try:
            await asyncio.sleep(0)  # the message leaves now
            try:
                await self._check_last_answer()
            except NodeFailed as failure:
                # Who was asked meanwhile has computed one message more, which its result has to count.
                self._failure = failure
                with suppress(NodeFailed):
                    return await asking
                raise
            return await asking
        finally:
            asking.cancel()

    async def _end_if_failed(self) -> None:
        """After a bad answer was found: take what an earlier node has given meanwhile, and end."""
        failure, answer = self._failure, self._unchecked
        if failure is None:
            return
        if answer is not None and answer.hop.segment < failure.segment:
            await answer.hop.accept(answer.data, answer.inputs, answer.row)
        raise failure

    async def _check_last_answer(self) -> None:
        answer, self._unchecked = self._unchecked, None
        if answer is None:
            return
        await answer.hop.accept(answer.data, answer.inputs, answer.row)
        for index, token in enumerate(answer.chosen):
            is_last = index == len(answer.chosen) - 1
            self._hand_out(answer.hop, token, answer.finished if is_last else None, answer.logprobs[index])

    def _hand_out(self, hop: Hop, token: int, finished: Finish | None, packed: Packed) -> None:
        self.tokens.append(token)
        expected = finish_reason(self.tokens, self._session.request)
        if finished != expected or token >= self._session.offer.model.vocabulary:
            self.tokens.pop()
            raise hop.failed(f"token {token} with finish {finished}, not {expected}")
        self._on_token(len(self.tokens) - 1, token, hop.logprobs(packed, token))


def chunk_of(session: OrderSession) -> int:
    """Rows in one message: each cut ends at a row that its node signed, in an answer and in its check."""
    return max(1, min(MESSAGE_BYTES // session.offer.row_bytes, 1 << 16))
