"""Decode: an inferencer of the whole model goes on alone, each token feeding the next, while its answers travel.

The loop runs ahead of the scheduler by at most `AHEAD` positions and ends with its session. Signatures are made when
rows are asked for: one covers all rows of an answer, so the loop never waits for the disk or the network.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
import numpy as np

from troth.node.errors import BadInput, OutOfOrder
from troth.node.service.bench import Bench
from troth.node.service.choosing import Asked, Packed, next_token
from troth.node.service.forwarding import finish, keep, require_unfinished, sign_rows
from troth.node.service.work import Work
from troth.protocol.tensors import rows_to_bytes, tokens_to_bytes
from troth.protocol.types import Row
from troth.protocol.wire import Decode, Decoded
from troth.protocol.wire_fields import DECODE_LIMIT

AHEAD = DECODE_LIMIT
"""Positions computed beyond the last answer: what a scheduler that goes away has had for nothing."""


async def decode(bench: Bench, work: Work, header: Decode) -> tuple[Decoded, bytes]:
    """Answer a Decode. The caller does not hold the work's lock: the loop takes it for each position.

    Raises:
        BadInput: not the only segment, not its inferencer, other log probabilities than before, or the text has ended.
        OutOfOrder: the prompt is not computed, positions were skipped, or the trace is committed.
        Refusal: what ended the loop; asking again begins it again.
    """
    if not (work.seat.is_first and work.seat.is_last and work.seat.infers):
        raise BadInput("only the inferencer of the whole model decodes alone", work.seat.index, "Send Forward.")
    work.require_open()
    if work.decoding is None:
        if header.start != work.positions or work.positions - 1 not in work.emitted:
            raise OutOfOrder("no token was chosen before this position", header.start, "Ask to emit first.")
        work.decoding = Decoding(bench, work, header.logprobs)
    if work.decoding.asked != header.logprobs:
        raise BadInput("other log probabilities were asked for before", work.seat.index, "Ask for the same.")
    return await work.decoding.answer(header.start, header.most)


@dataclass(frozen=True, slots=True)
class _Step:
    """One decoded position: its signed row and bytes, and the token that it chose."""

    row: Row
    data: bytes
    token: int
    logprobs: Packed
    seconds: float


class Decoding:
    """The loop of one session, which was at position `first` when it began to go on alone."""

    def __init__(self, bench: Bench, work: Work, asked: Asked) -> None:
        self._bench = bench
        self._work = work
        self.asked = asked
        self.first = work.positions
        self._steps: list[_Step] = []
        self._recorded = 0
        self._wanted = 0
        self._moved = asyncio.Condition()
        self._running: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def answer(self, start: int, most: int) -> tuple[Decoded, bytes]:
        """What was decoded from `start` on, as soon as there is something."""
        index = start - self.first
        if not 0 <= index <= len(self._steps):
            raise OutOfOrder(f"the next position is {self.first + len(self._steps)}", start, "Ask for that one.")
        await self._reach(index)
        end = min(index + most, len(self._steps))
        steps = self._steps[index:end]
        # The record must know every row that the signature covers, those of an answer that got lost included.
        signature = await sign_rows(self._bench, [step.row for step in self._steps[min(self._recorded, index) : end]])
        self._recorded = max(self._recorded, end)
        reply = Decoded(
            start,
            len(steps),
            signature,
            finish(self._work, signature.position, steps[-1].token),
            int(sum(step.seconds for step in steps) * 1_000_000),
            tuple(step.logprobs for step in steps if not isinstance(step.logprobs, msgspec.UnsetType)),
        )
        return reply, tokens_to_bytes([step.token for step in steps]) + b"".join(step.data for step in steps)

    async def stop(self) -> None:
        """The session is over."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _reach(self, index: int) -> None:
        """Wait until a step was done; the loop begins again if a failure or a lull had ended it."""
        async with self._moved:
            self._wanted = max(self._wanted, index)
            self._moved.notify_all()
            if index == len(self._steps):
                require_unfinished(self._work)
                self._start()
            await self._moved.wait_for(lambda: index < len(self._steps) or not self._goes_on)
        if index == len(self._steps):
            raise self._failure or OutOfOrder("the session has ended", self._work.positions, "Start another attempt.")

    def _start(self) -> None:
        if not self._goes_on:
            self._failure = None
            self._running = asyncio.create_task(self._run(), name="decoding")

    @property
    def _goes_on(self) -> bool:
        return self._running is not None and not self._running.done() and self._failure is None

    async def _run(self) -> None:
        try:
            while not (self._steps and finish(self._work, self._steps[-1].row.position, self._steps[-1].token)):
                await self._step()
                async with self._moved:
                    self._moved.notify_all()
                    await self._moved.wait_for(lambda: len(self._steps) <= self._wanted + AHEAD)
        except Exception as error:  # noqa: BLE001 - whoever waits for the next position is told, whatever broke
            await self._end(error)
        except asyncio.CancelledError:
            await self._end(OutOfOrder("the session was released", self._work.positions, "Start another attempt."))
            raise

    async def _end(self, failure: Exception) -> None:
        async with self._moved:
            self._failure = failure
            self._moved.notify_all()

    async def _step(self) -> None:
        """One position, as `forwarding.forward` would compute it."""
        work = self._work
        async with work.lock:
            work.require_open()
            position = work.positions
            inputs = np.array([work.emitted[position - 1]], dtype=np.int64)
            outputs, seconds = await self._bench.engine.forward(work.key, work.seat.layers, position, inputs)
            self._bench.meter.note(work.seat.layers.end - work.seat.layers.first, 1, seconds)
            data = rows_to_bytes(outputs, work.seat.dtype)
            chain, rows = work.own_chain.extend(data, work.row_size, work.tokens_of(inputs))
            chosen, head_seconds = await next_token(
                self._bench, work, outputs, position=rows[-1].position, asked=self.asked
            )
            keep(work, inputs, outputs, chain, None)
            work.emitted[position] = chosen.token
        self._steps.append(_Step(rows[-1], data, chosen.token, chosen.logprobs, seconds + head_seconds))
