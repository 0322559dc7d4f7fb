"""The tokens of one session's answer, as they are chosen; others wait here for the next one.

A list that only grows. Who listens holds nothing up: the session writes, and wakes whoever waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from troth.protocol.tokens import Finish

if TYPE_CHECKING:
    from troth.node.orders.choosing import Packed


class Answer:
    """What an inferencer of the whole model has chosen so far, with each token's packed log probabilities if asked."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[Packed] = []
        self.finished: Finish | None = None
        self.own = True
        """Whether this session chose every token itself: of others it does not know where they come from."""
        self._ended = False
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def over(self) -> bool:
        """Whether nothing follows: the text has ended, or its session has."""
        return self._ended or self.finished is not None

    def add(self, tokens: Sequence[int], logprobs: Packed, finished: Finish | None, *, own: bool = True) -> None:
        """The next tokens: the last one was chosen now, those before it, by the scheduler's word, by an earlier attempt
        elsewhere; then they are not `own`."""
        if self.over:
            return
        self.own = self.own and own
        self.tokens += tokens
        self.logprobs += [*(msgspec.UNSET for _ in tokens[1:]), logprobs]
        self.finished = finished
        self._wake()

    def end(self) -> None:
        """The session is over."""
        self._ended = True
        self._wake()

    async def reach(self, count: int) -> None:
        """Wait until there are more than `count` tokens, or nothing follows."""
        while len(self.tokens) <= count and not self.over:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
