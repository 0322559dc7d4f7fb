"""Texts that a node writes, and who listens to them while they grow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from troth.node.errors import NodeBusy, NotAssigned
from troth.protocol.request import Request
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.wire_group import HEARD_LIMIT, Heard, Listen

if TYPE_CHECKING:
    from troth.node.engine.interface import WholeEngine

PATIENCE = 10.0
"""Seconds that a listener waits for the next token before it is told that there is none."""


class _Answer:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = False
        self.failure: str | None = None
        self._grown = asyncio.Event()

    def change(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def beyond(self, start: int) -> None:
        while len(self.tokens) <= start and not self.ended:
            await self._grown.wait()


class Answers:
    """The texts of one run.

    Args:
        engine: writes them.
        served: called with the seconds that each took.
    """

    def __init__(self, engine: WholeEngine, served: Callable[[float], None]) -> None:
        self._engine, self._served = engine, served
        self._answers: dict[bytes, _Answer] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self.count = 0

    def begin(self, task: bytes, request: Request) -> None:
        """Write this text from now on."""
        answer = self._answers[task] = _Answer()
        writing = asyncio.create_task(self._write(answer, request, Hash32(task)))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def hear(self, message: Listen) -> tuple[Heard, bytes]:
        """What follows from `start` on, as soon as there is something; nothing after a while of silence.

        Raises:
            NotAssigned: no such text is written here.
            NodeBusy: the engine failed.
        """
        answer = self._answers.get(message.order)
        if answer is None:
            raise NotAssigned("there is no such task here", None, "Ask the node that took it.")
        try:
            await asyncio.wait_for(answer.beyond(message.start), PATIENCE)
        except TimeoutError:
            return Heard(message.start, 0), b""
        if answer.failure is not None:
            raise NodeBusy("the engine failed", answer.failure, "See the node's log.")
        tokens = answer.tokens[message.start : message.start + HEARD_LIMIT]
        whole = answer.ended and message.start + len(tokens) == len(answer.tokens)
        return Heard(message.start, len(tokens), "length" if whole else None), tokens_to_bytes(tokens)

    async def close(self) -> None:
        """Stop writing."""
        for writing in self._writing:
            writing.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write(self, answer: _Answer, request: Request, seed: Hash32) -> None:
        begun = time.monotonic()
        try:
            async for step in self._engine.generate(request, seed):
                answer.tokens.append(step.token)
                answer.ended = len(answer.tokens) == request.max_tokens
                answer.change()
            self.count += 1
            self._served(time.monotonic() - begun)
        except Exception as error:  # noqa: BLE001 - whoever listens must hear of it
            answer.failure = str(error)
        finally:
            answer.ended = True
            answer.change()
