"""The token loop: one attempt of a task, states relayed from segment to segment, tokens handed out as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec import UNSET, UnsetType

from troth.protocol.logprobs import Logprobs
from troth.protocol.tensors import TOKEN_BYTES, tokens_to_bytes
from troth.protocol.wire import Decoded, Rows
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.hop import Hop
from troth.scheduler.patience import MESSAGE_BYTES, Finish, Patience
from troth.scheduler.task_errors import HopFailed
from troth.scheduler.timing import Breakdown
from troth.scheduler.trace_store import Link, TaskTraces

Packed = bytes | UnsetType
Answered = TypeVar("Answered")
OnToken = Callable[[int, int, Logprobs | None], None]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a hop has answered and nobody has checked yet: rows computed from `inputs`, tokens chosen by the last of
    them, and why the very last token ends the text."""

    hop: Hop
    inputs: Sequence[int]
    data: memoryview
    link: Link
    chosen: Sequence[int]
    logprobs: Sequence[Packed]
    finished: Finish | None


class Pipeline:
    """The inferencers of one attempt, first segment first.

    Args:
        tokens: the output so far; what this attempt emits is appended.
        on_token: gets index, id and perhaps log probabilities of each token once the rows behind it were checked.
    """

    def __init__(
        self,
        task: AdmittedTask,
        hops: Sequence[Hop],
        traces: TaskTraces,
        *,
        tokens: list[int],
        on_token: OnToken,
        spent: Breakdown,
        patience: Patience,
    ) -> None:
        self._task = task
        self._hops = hops
        self._traces = traces
        self._tokens = tokens
        self._on_token = on_token
        self._spent = spent
        self._patience = patience
        self._unchecked: _Answer | None = None
        self._begun = 0.0

    async def run(self) -> Finish:
        """Prefill everything so far, then decode to the end; raises HopFailed naming who failed."""
        begun = time.perf_counter()
        self._begun = begun
        rows = await self._prefill([*self._task.request.prompt_tokens, *self._tokens], emit=True)
        finished = await (self._decode_alone(rows) if len(self._hops) == 1 else self._decode_relayed(rows))
        self._check_last_answer()
        self._spent.generation += time.perf_counter() - begun
        return finished

    async def replay(self) -> None:
        """Prefill a complete output, so that other inferencers can answer for it; raises HopFailed."""
        begun = time.perf_counter()
        # The last token has no state: nothing was ever computed from it.
        sequence = [*self._task.request.prompt_tokens, *self._tokens[:-1]]
        await self._prefill(sequence, emit=False)
        self._check_last_answer()
        self._spent.generation += time.perf_counter() - begun

    async def _decode_relayed(self, rows: Rows) -> Finish:
        """Token by token through all segments."""
        while rows.finished is None:
            position = len(self._task.request.prompt_tokens) + len(self._tokens)
            assert rows.token is not None  # Hop.forward refuses an answer without the token that was asked for
            rows = await self._pass(position, [rows.token], emit=True, timeout=self._patience.token)
        return rows.finished

    async def _decode_alone(self, rows: Rows) -> Finish:
        """The only segment feeds itself; whatever it has when it is asked comes in one answer."""
        hop, finished, start = self._hops[0], rows.finished, rows.start + rows.count
        assert rows.token is not None  # as above
        last = rows.token
        while finished is None:
            decoded, frame = await self._checking_meanwhile(hop.decode(start, self._patience.token))
            self._count(hop, decoded)
            chosen = hop.chosen(decoded, frame)
            with self._spent.spent("signing"):
                link = hop.countersign(decoded)
            data = frame.payload[len(chosen) * TOKEN_BYTES :]
            logprobs = decoded.logprobs or [UNSET] * len(chosen)
            self._unchecked = _Answer(hop, (last, *chosen[:-1]), data, link, chosen, logprobs, decoded.finished)
            last, finished, start = chosen[-1], decoded.finished, start + decoded.count
        return finished

    async def _prefill(self, sequence: Sequence[int], *, emit: bool) -> Rows:
        size = max(1, MESSAGE_BYTES // self._task.row_bytes)
        for start in range(0, len(sequence), size):
            part = sequence[start : start + size]
            emits = emit and start + size >= len(sequence)
            timeout = self._patience.prefill
            rows = await self._pass(start, part, emit=emits, timeout=timeout)
        return rows

    async def _pass(self, start: int, tokens: Sequence[int], *, emit: bool, timeout: float) -> Rows:
        """Once through all segments; the answer of each hop is checked while the next one works."""
        count, sent = len(tokens), tokens_to_bytes(tokens)
        payload: bytes | memoryview = sent
        upstream: Link | None = None
        for hop in self._hops:
            emits = emit and hop is self._hops[-1]
            forwarding = hop.forward(start, count, payload, upstream, emit=emits, timeout=timeout)
            rows, frame = await self._checking_meanwhile(forwarding)
            self._count(hop, rows)
            with self._spent.spent("signing"):
                upstream = hop.countersign(rows)
            chosen = () if rows.token is None else (rows.token,)
            self._unchecked = _Answer(hop, tokens, frame.payload, upstream, chosen, (rows.logprobs,), rows.finished)
            # Rows of segment 0 are signed together with their tokens, so segment 1 is sent both.
            payload = frame.payload if hop.segment else sent + frame.payload
        return rows

    async def _checking_meanwhile(self, request: Coroutine[None, None, Answered]) -> Answered:
        """Ask a hop, and check the answer before while it works."""
        asking = asyncio.create_task(request)
        try:
            await asyncio.sleep(0)  # the message leaves now
            self._check_last_answer()
            return await asking
        finally:
            asking.cancel()

    def _check_last_answer(self) -> None:
        answer, self._unchecked = self._unchecked, None
        if answer is None:
            return
        answer.hop.accept(answer.data, answer.inputs, answer.link, self._traces, self._spent)
        for index, token in enumerate(answer.chosen):
            is_last = index == len(answer.chosen) - 1
            self._hand_out(answer.hop, token, answer.finished if is_last else None, answer.logprobs[index])

    def _hand_out(self, hop: Hop, token: int, finished: Finish | None, packed: Packed) -> None:
        request = self._task.request
        expected: Finish | None = None
        if token in request.end_tokens:
            expected = "stop"
        elif len(self._tokens) + 1 == request.max_tokens:
            expected = "length"
        if finished != expected or token >= self._task.model.vocabulary:
            raise HopFailed(hop.segment, hop.operator, f"token {token} with finish {finished}, not {expected}")
        if not self._tokens:
            self._spent.first_token = time.perf_counter() - self._begun
        self._tokens.append(token)
        self._spent.tokens += 1
        self._on_token(len(self._tokens) - 1, token, hop.logprobs(packed, token))

    def _count(self, hop: Hop, rows: Rows | Decoded) -> None:
        self._spent.messages += 1
        self._spent.waiting += hop.latency
        self._spent.model += rows.model_microseconds / 1e6
