"""A text that grows from outside: one request of the engine that waits for more tokens and keeps its cache meanwhile.

vLLM's streaming input is used with an answer of one token: it forgets that token when the next input comes, so that
what is appended is what the caller says and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from troth.node.engine.vllm.core import Core


class GrowingText:
    """Open until `close`; `length` positions were sent."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.name = core.name()
        self.length = 0
        self._parts: asyncio.Queue[list[int] | None] = asyncio.Queue()
        core.board.expect(self.name)
        self._running = asyncio.create_task(self._run())

    @property
    def open(self) -> bool:
        """Whether more can be appended."""
        return not self._running.done() and not self.core.dead.is_set()

    def append(self, tokens: Sequence[int]) -> None:
        """Send more tokens; their rows arrive on the board."""
        self._parts.put_nowait(list(tokens))
        self.length += len(tokens)

    async def close(self) -> None:
        """End the request; its blocks stay in the prefix cache as long as there is room."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.core.board.drop(self.name)

    async def _run(self) -> None:
        try:
            async for _ in self.core.run(self.name, self._inputs(), {"max_tokens": 1}):
                pass
        except Exception as error:  # noqa: BLE001 - whoever waits for rows raises it
            self.core.board.fail_one(self.name, error)

    async def _inputs(self) -> AsyncIterator[list[int]]:
        while (part := await self._parts.get()) is not None:
            yield part
