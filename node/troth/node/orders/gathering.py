"""Proceed: what all texts that a scheduler waits for have come to, in one answer.

An answer leaves as soon as any text has something to say. The next one waits for ``GATHER_SECONDS`` after it, for an
engine that is faster than eyes fills it meanwhile, and hashes, signatures, envelope and frame are made for all texts of
it together. A text that begins, ends or fails does not wait, and one that says nothing holds up no other. An answer is
bounded in bytes: what has no room comes with the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from troth.chain.rounds import rounds
from troth.node.orders.chaining import signed_ranges
from troth.node.orders.context import NodeContext
from troth.node.orders.decoding import Bell, Decoding, decoding_of
from troth.node.orders.session import SegmentSession
from troth.protocol.errors import TrothError
from troth.protocol.wire_decoding import DecodedPart, HaltedPart, WantedText, WrittenPart
from troth.transport.errors import INTERNAL, failure_of

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
"""How long after one answer the next one is filled."""
SETTLE_SECONDS = 0.002
"""How long the first of several texts that moved waits for the others: a batch moves all of them in one step."""
HOLD_SECONDS = 5.0
"""After which an answer says that there is nothing yet."""
ANSWER_BYTES = 2**20
"""Rows of one answer, which the loop encrypts in a millisecond: beyond the first text, none is added that would exceed
it."""

Found = SegmentSession | TrothError


@dataclass(slots=True)
class Caller:
    """A scheduler that asks: the bell of its question that waits, and when it was answered last."""

    bell: Bell = field(default_factory=Bell)
    answered: float = 0.0


@dataclass(frozen=True, slots=True)
class _Followed:
    """One wanted text of which more may come."""

    wanted: WantedText
    session: SegmentSession
    decoding: Decoding

    @property
    def has_news(self) -> bool:
        return self.decoding.end > self.wanted.start or self.decoding.failure is not None

    @property
    def is_pressing(self) -> bool:
        begins = self.wanted.start == self.decoding.first
        return self.decoding.failure is not None or (self.has_news and (begins or self.decoding.finished))

    @property
    def waiting_bytes(self) -> int:
        return (self.decoding.end - self.wanted.start) * self.session.rows.sent_size

    def end(self, most: int) -> int:
        return min(self.decoding.end, self.wanted.start + most)


class TextsAnswer:
    """One question of one scheduler, which takes the place of the one before."""

    def __init__(self, context: NodeContext, caller: Caller, most: int) -> None:
        self._context = context
        self._caller = caller
        self._most = most
        self._halted: list[DecodedPart] = []
        self._followed: list[_Followed] = []
        caller.bell.supersede()
        self._bell = caller.bell = Bell()

    async def answer(self, texts: Sequence[tuple[WantedText, Found]]) -> list[DecodedPart]:
        """What there is of these texts, sessions of the scheduler or why there are none; waits until there is some."""
        for wanted, found in texts:
            if self._bell.superseded:
                return []
            if self._follow(wanted, found):
                # Its first step is taken now: those of many texts at once would hold up everybody else.
                await asyncio.sleep(0)
            await rounds.give_way()
        if not self._halted:
            await self._news()
        if self._bell.superseded:
            return []
        self._caller.answered = time.monotonic()
        return [*self._halted, *await self._parts()]

    def _follow(self, wanted: WantedText, found: Found) -> bool:
        """Whether it begins now."""
        try:
            if isinstance(found, TrothError):
                raise found
            begins = found.decoding is None
            decoding = decoding_of(self._context, found, wanted)
            decoding.ask(wanted.start, self._bell)
            self._followed.append(_Followed(wanted, found, decoding))
        except TrothError as error:
            self._halt(wanted, error)
            return False
        return begins

    def _halt(self, wanted: WantedText, error: Exception) -> None:
        failure = failure_of(error)
        if failure.code == INTERNAL:
            log.error("a text broke off", exc_info=error)
        self._halted.append(HaltedPart(wanted.order, wanted.start, failure))

    async def _news(self) -> None:
        """Until something is to be said, and has had time to become more."""
        if not any(one.has_news for one in self._followed):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._bell.moved.wait()
        full = 2 * sum(one.waiting_bytes for one in self._followed) >= ANSWER_BYTES
        if full or self._bell.superseded or any(one.is_pressing for one in self._followed):
            # Those that move in the same step of the engine are told together all the same.
            await asyncio.sleep(0)
            return
        pause = self._caller.answered + GATHER_SECONDS - time.monotonic()
        waiting = len(self._followed) > 1 and not all(one.has_news for one in self._followed)
        pause = max(pause, SETTLE_SECONDS if waiting else 0.0)
        if pause > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._bell.pressing.wait()

    async def _parts(self) -> list[DecodedPart]:
        chosen: list[tuple[_Followed, int]] = []
        room = ANSWER_BYTES
        # Who was left out for want of room comes first.
        for one in sorted(self._followed, key=lambda one: one.decoding.told):
            needed = (one.end(self._most) - one.wanted.start) * one.session.rows.sent_size
            if not needed or (chosen and needed > room):
                continue
            room -= needed
            one.decoding.told = self._caller.answered
            chosen.append((one, one.end(self._most)))
        ranges = [(one.session, one.wanted.start, end) for one, end in chosen]
        outcomes = await signed_ranges(self._context.operator, ranges) if ranges else []
        parts: list[DecodedPart] = []
        for (one, end), outcome in zip(chosen, outcomes, strict=True):
            await rounds.give_way()
            if isinstance(outcome, TrothError):
                parts.append(HaltedPart(one.wanted.order, one.wanted.start, failure_of(outcome)))
                continue
            start, session = one.wanted.start, one.session
            tokens = tuple(session.text.emitted[position] for position in range(start, end))
            parts.append(
                WrittenPart(
                    one.wanted.order,
                    start,
                    tokens,
                    outcome.row,
                    outcome.data,
                    session.rows.sent_size,
                    session.text.finish(end - 1, tokens[-1]),
                    one.decoding.microseconds(start, end),
                    one.decoding.logprobs(start, end),
                )
            )
        return parts + self._failed()

    def _failed(self) -> list[DecodedPart]:
        """Texts that have nothing more to say than why."""
        already = len(self._halted)
        for one in self._followed:
            if one.decoding.failure is not None and one.decoding.end == one.wanted.start:
                self._halt(one.wanted, one.decoding.failure)
        return self._halted[already:]
