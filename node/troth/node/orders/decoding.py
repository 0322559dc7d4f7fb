"""The loop of a session whose node has the whole model: it goes on alone, each token feeding the next.

An engine that writes texts by itself does so, in one batch with its other requests; any other is fed position by
position. The loop takes at most ``AHEAD`` positions more than the scheduler has asked for, then rests until it is; of a
text that may end early no more than what was asked for pays. It neither hashes nor signs: that is done for all texts of
an answer at once (module ``gathering``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import msgspec
import numpy as np

from troth.node.engine.interface import writes_alone
from troth.node.errors import BadInput, OutOfOrder
from troth.node.orders.choosing import Asked, ChosenToken, Packed, next_token
from troth.node.orders.context import NodeContext
from troth.node.orders.reading import positions_paid
from troth.node.orders.session import SegmentSession
from troth.protocol.wire_decoding import WantedText
from troth.protocol.wire_fields import DECODE_LIMIT

AHEAD = DECODE_LIMIT
"""Positions computed beyond the last answer: what a scheduler that goes away has had for nothing."""

REST_SECONDS = 2.0
"""After which a loop that is so far ahead lets the engine go."""


class Bell:
    """Wakes the answer that waits for the texts of one scheduler: something ``moved``, or there is no time to lose."""

    def __init__(self) -> None:
        self.moved = asyncio.Event()
        self.pressing = asyncio.Event()
        self.superseded = False

    def ring(self, *, pressing: bool) -> None:
        """There is something to say; ``pressing``: and it shall be said now."""
        self.moved.set()
        if pressing:
            self.pressing.set()

    def supersede(self) -> None:
        """A newer question took the place of the one that waits."""
        self.superseded = True
        self.ring(pressing=True)


def decoding_of(context: NodeContext, session: SegmentSession, wanted: WantedText) -> Decoding:
    """The loop of a session, begun where this is the first position that is wanted of it.

    Raises:
        BadInput: not the only segment, not its inferencer, or other log probabilities than before.
        OutOfOrder: the prompt is not computed, or the segment is concluded.
    """
    seat, asked = session.seat, msgspec.UNSET if wanted.alternatives is None else wanted.alternatives
    if not (seat.is_first and seat.is_last and seat.infers):
        raise BadInput("only the inferencer of the whole model decodes alone", seat.index, "Send Advance.")
    session.require_open()
    if session.decoding is None:
        if wanted.start != session.rows.positions or session.rows.positions - 1 not in session.text.emitted:
            raise OutOfOrder("no token was chosen before this position", wanted.start, "Ask to emit first.")
        session.decoding = Decoding(context, session, asked)
    loop = session.decoding
    assert isinstance(loop, Decoding)
    if loop.asked != asked:
        raise BadInput("other log probabilities were asked for before", seat.index, "Ask for the same.")
    return loop


class Decoding:
    """The loop of one session, which was at position ``first`` when it began to go on alone.

    ``bell`` is rung at each position; ``failure`` is what ended the loop, until it is asked for more; ``told`` is when
    the last answer had something of it.
    """

    def __init__(self, context: NodeContext, session: SegmentSession, asked: Asked) -> None:
        self._context = context
        self._session = session
        self.asked = asked
        self.first = session.rows.positions
        self.bell = Bell()
        self.failure: Exception | None = None
        self.told = 0.0
        self._writes = writes_alone(context.engine) and asked is msgspec.UNSET
        self._seconds: list[float] = []
        self._logprobs: list[Packed] = []
        self._wanted = self.first
        self._most = self._most_ahead()
        self._more = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._goes_on = False
        self._finished = False

    @property
    def end(self) -> int:
        """The position after the last one that was decoded."""
        return self.first + len(self._seconds)

    @property
    def finished(self) -> bool:
        """Whether the last token ends the text."""
        return self._finished

    def ask(self, start: int, bell: Bell) -> None:
        """``start`` is the next position that is wanted; the loop goes on if it rests, or had failed.

        Raises OutOfOrder where positions were skipped, BadInput where the text has ended before.
        """
        if not self.first <= start <= self.end:
            raise OutOfOrder(f"the next position is {self.end}", start, "Ask for that one.")
        if start == self.end and self._finished:
            raise BadInput("the text has ended", start, "Send Conclude.")
        self.bell, self._wanted = bell, max(self._wanted, start)
        self._most = self._most_ahead()
        self._more.set()
        if not self._finished and not self._goes_on:
            self._goes_on, self.failure = True, None
            self._running = asyncio.create_task(self._run(), name="decoding")

    def _most_ahead(self) -> int:
        """Positions beyond what is wanted. Nobody pays for them where the text ends before them: then they are no more
        than those that are paid, so that nobody makes a node work for the price of less than half of it."""
        if not self._session.seat.request.may_end_early:
            return AHEAD
        return min(max(positions_paid(self._session, self._wanted), 1), AHEAD)

    def microseconds(self, start: int, end: int) -> int:
        """What the model took for these positions."""
        return min(int(sum(self._seconds[start - self.first : end - self.first]) * 1_000_000), (1 << 32) - 1)

    def logprobs(self, start: int, end: int) -> tuple[bytes, ...]:
        """Of these positions, where they were asked for."""
        told = self._logprobs[start - self.first : end - self.first]
        return tuple(one for one in told if not isinstance(one, msgspec.UnsetType))

    async def stop(self) -> None:
        """The session is over."""
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            if self._goes_on and self._running is running:
                # Cancelled before its first step, so that nothing of the loop ran, its end neither.
                self._end(self._over())

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            async with aclosing(self._written() if self._writes else self._computed()) as steps:
                async for seconds in steps:
                    self._seconds.append(seconds)
                    self._finished = self._session.text.telling.finished is not None
                    ahead = self.end - self._wanted
                    if self._finished:
                        self.bell.ring(pressing=True)
                        return
                    self.bell.ring(pressing=2 * ahead > self._most or len(self._seconds) == 1)
                    if ahead > self._most and not await self._wanted_more():
                        return
        except Exception as error:  # noqa: BLE001 - whoever waits for the next position is told, whatever broke
            failure = error
        except asyncio.CancelledError:
            failure = self._over()
            raise
        finally:
            self._end(failure)

    async def _wanted_more(self) -> bool:
        """Whether more is asked for before long: to begin a text anew costs an engine more than a pause."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while self.end - self._wanted > self._most:
                    self._more.clear()
                    await self._more.wait()
        return self.end - self._wanted <= self._most

    def _end(self, failure: Exception | None) -> None:
        self._goes_on, self.failure = False, failure
        if failure is None and not self._finished and self.end == self._wanted:
            # It went to rest just before it was asked for more.
            self.ask(self._wanted, self.bell)
        self.bell.ring(pressing=True)

    def _over(self) -> OutOfOrder:
        return OutOfOrder("the session is over", self._session.rows.positions, "Order again.")

    async def _computed(self) -> AsyncGenerator[float, None]:
        """Position by position, as ``advancing.advance`` would compute them; the seconds of each."""
        session, engine = self._session, self._context.engine
        while True:
            async with session.lock:
                session.require_open()
                position = session.rows.positions
                inputs = np.array([session.text.emitted[position - 1]], dtype=np.int64)
                outputs, seconds, _ = await engine.forward(session.key, session.seat.layers, position, inputs)
                self._note(seconds)
                chosen, more = await next_token(self._context, session, outputs, position=position, asked=self.asked)
                session.rows.add(inputs, outputs)
                self._chosen(position, chosen)
            yield seconds + more

    async def _written(self) -> AsyncGenerator[float, None]:
        """What the engine writes by itself after the text so far; the seconds of each position."""
        session, engine = self._session, self._context.engine
        assert writes_alone(engine)
        text = [*session.rows.all_inputs().tolist(), session.text.emitted[session.rows.positions - 1]]
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
                if session.lock.locked():
                    async with session.lock:
                        pass
                # Nobody else is at the session until the next await.
                session.require_open()
                position = session.rows.positions
                inputs = np.array([session.text.emitted[position - 1]], dtype=np.int64)
                # The first step brings the rows of the text so far, too; they are known and signed.
                session.rows.add(inputs, rows[-1:])
                self._chosen(position, ChosenToken(token))
                yield seconds
                began = time.perf_counter()

    def _chosen(self, position: int, chosen: ChosenToken) -> None:
        self._session.text.emit(position, chosen.token, chosen.logprobs)
        self._logprobs.append(chosen.logprobs)

    def _note(self, seconds: float) -> None:
        layers = self._session.seat.layers
        self._context.meter.note(layers.end - layers.first, 1, seconds)
