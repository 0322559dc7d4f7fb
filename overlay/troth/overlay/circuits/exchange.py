"""One message of a client and the answers to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from troth.overlay.cells.messages import CellMessage
from troth.transport.errors import CircuitFailed


class Exchange:
    """Answers to message `number`, in order. Ends with the final answer or with CircuitFailed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.failure: CircuitFailed | None = None
        self._answers: deque[CellMessage] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.done = False
        self.unread = 0

    async def answer(self) -> CellMessage:
        """The next answer; raises CircuitFailed if none will come."""
        while not self._answers:
            if self.failure is not None:
                raise self.failure
            if self.done:
                raise CircuitFailed("client", 0, "an answer was awaited after the final one", "Read up to `final`.")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._answers.popleft()
        self.unread -= len(message.content)
        return message

    async def answers(self) -> AsyncIterator[bytes]:
        """The content of every answer up to the final one."""
        final = False
        while not final:
            message = await self.answer()
            final = message.final
            yield message.content

    def came(self, message: CellMessage) -> None:
        """Called by the circuit."""
        self._answers.append(message)
        self.unread += len(message.content)
        self.done = message.final
        self._wake()

    def failed(self, failure: CircuitFailed) -> None:
        """Called by the circuit."""
        self.failure = self.failure or failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
