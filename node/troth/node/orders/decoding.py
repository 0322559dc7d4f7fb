"""Proceed: an inferencer of the whole model goes on alone, each token feeding the next, while its answers travel.

An engine that writes texts by itself does so, in one batch with its other requests; any other is fed position by
position. The loop runs ahead of the scheduler by at most ``AHEAD`` positions, then rests until it is asked again. One
signature covers all rows of an answer and is made when they are asked for; an engine that is faster than eyes fills an
answer for ``GATHER_SECONDS``, since signature, envelope and frame cost more than the tokens in them.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from troth.node.orders.advancing import keep, signed_row
from troth.node.orders.bench import NodeContext
from troth.node.orders.choosing import Asked, ChosenToken, Packed, next_token
from troth.node.orders.reading import MessageInputs
from troth.node.orders.session import SegmentSession
from troth.protocol.market.types import Row
from troth.protocol.tensors import rows_to_bytes, tokens_to_bytes
from troth.protocol.wire import Decoded
from troth.protocol.wire_fields import DECODE_LIMIT
from troth.protocol.wire_market import Proceed

AHEAD = DECODE_LIMIT
"""Positions computed beyond the last answer: what a scheduler that goes away has had for nothing."""

GATHER_SECONDS = 0.025
"""How long an answer that has something to say waits for more; the first one of a text does not."""


async def proceed(bench: NodeContext, session: SegmentSession, header: Proceed) -> tuple[Decoded, bytes]:
    """Answer a Proceed. The caller does not hold the session's lock: the loop takes it for each position.

    Raises:
        BadInput: not the only segment, not its inferencer, other log probabilities than before, or the text has ended.
        OutOfOrder: the prompt is not computed, positions were skipped, or the segment is concluded.
        Refusal: what ended the loop; asking again begins it again.
    """
    seat = session.seat
    if not (seat.is_first and seat.is_last and seat.infers):
        raise BadInput("only the inferencer of the whole model decodes alone", seat.index, "Send Advance.")
    session.require_open()
    if session.decoding is None:
        if header.start != session.positions or session.positions - 1 not in session.emitted:
            raise OutOfOrder("no token was chosen before this position", header.start, "Ask to emit first.")
        session.decoding = Decoding(bench, session, header.logprobs)
    if session.decoding.asked != header.logprobs:
        raise BadInput("other log probabilities were asked for before", seat.index, "Ask for the same.")
    return await session.decoding.answer(header.start, header.most)


@dataclass(frozen=True, slots=True)
class _Step:
    """One decoded position: its row and bytes, and the token that it chose."""

    row: Row
    data: bytes
    token: int
    logprobs: Packed
    seconds: float


class Decoding:
    """The loop of one session, which was at position ``first`` when it began to go on alone."""

    def __init__(self, bench: NodeContext, session: SegmentSession, asked: Asked) -> None:
        self._bench = bench
        self._session = session
        self.asked = asked
        self.first = session.positions
        self._steps: list[_Step] = []
        self._wanted = 0
        self._moved = asyncio.Condition()
        self._running: asyncio.Task[None] | None = None
        self._goes_on = False
        self._failure: Exception | None = None
        self._resting = asyncio.Event()

    async def answer(self, start: int, most: int) -> tuple[Decoded, bytes]:
        """What was decoded from ``start`` on, as soon as there is something."""
        index = start - self.first
        if not 0 <= index <= len(self._steps):
            raise OutOfOrder(f"the next position is {self.first + len(self._steps)}", start, "Ask for that one.")
        await self._reach(index)
        if index and self._steps[-1].seconds < GATHER_SECONDS / 2:
            await self._gather()
        steps = self._steps[index : index + most]
        signature = signed_row(self._bench, steps[-1].row)
        reply = Decoded(
            start,
            len(steps),
            signature,
            self._session.finish(signature.position, steps[-1].token),
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
                self._failure = self._over()
                await self._rest()

    async def _reach(self, index: int) -> None:
        """Wait until a step was done; the loop begins again if a failure or a rest had ended it."""
        async with self._moved:
            self._wanted = max(self._wanted, index)
            if index == len(self._steps) and self._finished:
                raise BadInput("the text has ended", self.first + index, "Send Conclude.")
            if not self._finished:
                self._start()
            while index == len(self._steps):
                await self._moved.wait()
                if index == len(self._steps) and not self._goes_on:
                    if self._failure is not None:
                        raise self._failure
                    # It went to rest just before it was asked for more.
                    self._start()

    async def _gather(self) -> None:
        """Give the loop time for more steps, unless it rests."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):
                await self._resting.wait()

    def _start(self) -> None:
        if not self._goes_on:
            self._resting.clear()
            self._goes_on, self._failure = True, None
            self._running = asyncio.create_task(self._run(), name="decoding")

    @property
    def _finished(self) -> bool:
        session = self._session
        last = session.positions - 1
        token = session.emitted.get(last)
        return token is not None and session.finish(last, token) is not None

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
            self._failure = self._over()
            raise
        finally:
            await self._rest()

    async def _rest(self) -> None:
        async with self._moved:
            self._goes_on = False
            self._resting.set()
            self._moved.notify_all()

    def _over(self) -> OutOfOrder:
        return OutOfOrder("the session is over", self._session.positions, "Order again.")

    async def _computed(self) -> AsyncGenerator[_Step, None]:
        """Position by position, as ``advancing.advance`` would compute them."""
        session, engine = self._session, self._bench.engine
        while True:
            async with session.lock:
                session.require_open()
                position = session.positions
                inputs = np.array([session.emitted[position - 1]], dtype=np.int64)
                outputs, seconds, _ = await engine.forward(session.key, session.seat.layers, position, inputs)
                self._note(seconds)
                chosen, more = await next_token(self._bench, session, outputs, position=position, asked=self.asked)
                row, data = self._keep(inputs, outputs, chosen)
            yield _Step(row, data, chosen.token, chosen.logprobs, seconds + more)

    async def _written(self) -> AsyncGenerator[_Step, None]:
        """What the engine writes by itself after the text so far."""
        session, engine = self._session, self._bench.engine
        assert isinstance(engine, WholeEngine)
        text = [*session.all_inputs().tolist(), session.emitted[session.positions - 1]]
        ordered = session.seat.request
        transforms = ordered.transforms
        if transforms.any:
            written = transforms.written + len(text) - len(ordered.prompt_tokens)
            transforms = replace(transforms, written=written)
        left = ordered.position_limit + 1 - len(text)
        request = replace(ordered, prompt_tokens=tuple(text), max_tokens=left, transforms=transforms)
        began = time.perf_counter()
        async with aclosing(engine.generate(request, session.seat.noise_seed)) as steps:
            async for token, rows in steps:
                seconds = time.perf_counter() - began
                self._note(seconds)
                async with session.lock:
                    session.require_open()
                    inputs = np.array([session.emitted[session.positions - 1]], dtype=np.int64)
                    # The first step brings the rows of the text so far, too; they are known and signed.
                    row, data = self._keep(inputs, rows[-1:], ChosenToken(token))
                yield _Step(row, data, token, msgspec.UNSET, seconds)
                began = time.perf_counter()

    def _note(self, seconds: float) -> None:
        layers = self._session.seat.layers
        self._bench.meter.note(layers.end - layers.first, 1, seconds)

    def _keep(self, inputs: NDArray[Any], outputs: NDArray[Any], chosen: ChosenToken) -> tuple[Row, bytes]:
        """Add one position to the session; the caller holds the lock."""
        session = self._session
        data = rows_to_bytes(outputs, session.seat.dtype)
        chain, row = session.own.extend(data, session.row_size, session.tokens_of(inputs))
        keep(session, MessageInputs(inputs, memoryview(b""), None), outputs, chain)
        session.emit(row.position, chosen.token, chosen.logprobs)
        return row, data
