"""An answer as it grows, for who listens to it while it is written, and a while after its session is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from troth.protocol.tokens import Finish

Packed = bytes | UnsetType


@dataclass(slots=True)
class GrowingAnswer:
    """Tokens so far with their log probabilities; ``result`` once it is signed, ``over`` when nothing follows."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[Packed] = field(default_factory=list)
    finished: Finish | None = None
    result: bytes = b""
    over: bool = False
    _grown: asyncio.Event | None = None

    def add(self, token: int, finished: Finish | None, logprobs: Packed = UNSET) -> None:
        """One more token, and why the text ends with it."""
        self.tokens.append(token)
        self.logprobs.append(logprobs)
        self.finished = finished
        self._wake()

    def conclude(self, result: bytes, written: int) -> None:
        """The node signed its result over so many tokens: what it wrote beyond an early end is told to nobody."""
        if len(self.tokens) > written:
            # Why the text would have ended later is no reason any more.
            self.finished = "length"
        del self.tokens[written:], self.logprobs[written:]
        self.result, self.finished = result, self.finished or "length"
        self.end()

    def end(self) -> None:
        """Nothing follows."""
        self.over = True
        self._wake()

    async def reach(self, start: int) -> None:
        """Wait for a token from ``start`` on, or the end."""
        while len(self.tokens) <= start and not self.over:
            self._grown = self._grown or asyncio.Event()
            await self._grown.wait()

    def _wake(self) -> None:
        grown, self._grown = self._grown, None
        if grown is not None:
            grown.set()
