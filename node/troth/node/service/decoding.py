"""Decode: an inferencer of the whole model goes on alone, each token feeding the next, while its answers travel.

An engine that writes texts by itself does so, in one batch with its other requests; any other is fed position by
position. The loop runs ahead of the scheduler by at most `AHEAD` positions, then rests until it is asked again.
Signatures are made when rows are asked for: one covers all rows of an answer, so the loop never waits for the disk or
the network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from troth.node.engine.interface import WholeEngine
from troth.node.errors import BadInput, OutOfOrder
from troth.node.service.bench import Bench
from troth.node.service.choosing import Asked, Chosen, Packed, next_token
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
        self._goes_on = False
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
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if self._goes_on and self._running is running:
                # Cancelled before its first step, so that nothing of the loop ran, its end neither.
                self._failure = self._released()
                await self._rest()

    async def _reach(self, index: int) -> None:
        """Wait until a step was done; the loop begins again if a failure or a rest had ended it."""
        async with self._moved:
            self._wanted = max(self._wanted, index)
            if index == len(self._steps):
                require_unfinished(self._work)
            if not self._finished:
                self._start()
            while index == len(self._steps):
                await self._moved.wait()
                if index == len(self._steps) and not self._goes_on:
                    if self._failure is not None:
                        raise self._failure
                    # It went to rest just before it was asked for more.
                    self._start()

    def _start(self) -> None:
        if not self._goes_on:
            self._goes_on, self._failure = True, None
            self._running = asyncio.create_task(self._run(), name="decoding")

    @property
    def _finished(self) -> bool:
        last = self._steps[-1] if self._steps else None
        return last is not None and finish(self._work, last.row.position, last.token) is not None

    async def _run(self) -> None:
        writes = isinstance(self._bench.engine, WholeEngine) and self.asked is msgspec.UNSET
        try:
            async with aclosing(self._written() if writes else self._computed()) as steps:
                async for step in steps:
                    self._steps.append(step)
                    async with self._moved:
                        self._moved.notify_all()
                    if self._finished or len(self._steps) > self._wanted + AHEAD:
                        return
        except Exception as error:  # noqa: BLE001 - whoever waits for the next position is told, whatever broke
            self._failure = error
        except asyncio.CancelledError:
            self._failure = self._released()
            raise
        finally:
            await self._rest()

    async def _rest(self) -> None:
        async with self._moved:
            self._goes_on = False
            self._moved.notify_all()

    def _released(self) -> OutOfOrder:
        return OutOfOrder("the session was released", self._work.positions, "Start another attempt.")

    async def _computed(self) -> AsyncGenerator[_Step, None]:
        """Position by position, as `forwarding.forward` would compute them."""
        work, engine = self._work, self._bench.engine
        while True:
            async with work.lock:
                work.require_open()
                position = work.positions
                inputs = np.array([work.emitted[position - 1]], dtype=np.int64)
                outputs, seconds = await engine.forward(work.key, work.seat.layers, position, inputs)
                self._note(seconds)
                chosen, head_seconds = await next_token(self._bench, work, outputs, position=position, asked=self.asked)
                row, data = self._keep(inputs, outputs, chosen)
            yield _Step(row, data, chosen.token, chosen.logprobs, seconds + head_seconds)

    async def _written(self) -> AsyncGenerator[_Step, None]:
        """What the engine writes by itself after the text so far."""
        work, engine = self._work, self._bench.engine
        assert isinstance(engine, WholeEngine)
        text = [*work.all_inputs().tolist(), work.emitted[work.positions - 1]]
        ordered = work.seat.request
        request = replace(ordered, prompt_tokens=tuple(text), max_tokens=ordered.position_limit + 1 - len(text))
        began = time.perf_counter()
        async with aclosing(engine.generate(request, work.seat.noise_seed)) as steps:
            async for token, rows in steps:
                seconds = time.perf_counter() - began
                self._note(seconds)
                async with work.lock:
                    work.require_open()
                    inputs = np.array([work.emitted[work.positions - 1]], dtype=np.int64)
                    # The first step brings the rows of the text so far, too; they are known and signed.
                    row, data = self._keep(inputs, rows[-1:], Chosen(token))
                yield _Step(row, data, token, msgspec.UNSET, seconds)
                began = time.perf_counter()

    def _note(self, seconds: float) -> None:
        layers = self._work.seat.layers
        self._bench.meter.note(layers.end - layers.first, 1, seconds)

    def _keep(self, inputs: NDArray[Any], outputs: NDArray[Any], chosen: Chosen) -> tuple[Row, bytes]:
        """Add one position to the session; the caller holds the lock."""
        work = self._work
        data = rows_to_bytes(outputs, work.seat.dtype)
        chain, rows = work.own_chain.extend(data, work.row_size, work.tokens_of(inputs))
        keep(work, inputs, outputs, chain, None)
        position = rows[-1].position
        work.note_token(position, *chosen, finish(work, position, chosen.token))
        return rows[-1], data
