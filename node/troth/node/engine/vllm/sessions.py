"""Sessions of the existing protocol: texts that a scheduler grows position by position.

The tokens are what is kept; the engine's cache only makes them cheap. So a session outlives an engine that has died:
its next positions are computed after a prefill of those before, with the same bits.

A text that grows from outside: one request of the engine that waits for more tokens and keeps its cache meanwhile.

vLLM's streaming input is used with an answer of one token: it forgets that token when the next input comes, so that
what is appended is what the caller says and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from troth.node.engine.interface import SessionKey
from troth.node.engine.vllm.core import Core
from troth.node.errors import OutOfOrder


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

    @property
    def computing(self) -> bool:
        """Whether rows of what was sent are still to come."""
        return self.open and self.core.board.end(self.name) < self.length

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


@dataclass(slots=True)
class EngineSession:
    """`tokens` of all positions so far; `text` while the engine holds its cache open."""

    tokens: list[int] = field(default_factory=list)
    text: GrowingText | None = None

    async def close(self) -> None:
        """Let the engine reuse the cache."""
        if self.text is not None:
            text, self.text = self.text, None
            await text.close()


class EngineSessions:
    """Sessions in the order of their last use. Only so many positions are held open in the cache that idle sessions
    never keep other requests from running; one that is being computed ends by itself and is not cut off."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, EngineSession] = OrderedDict()

    def continued(self, key: SessionKey, start: int, inputs: Sequence[int]) -> list[int]:
        """The whole text once `inputs` stand at `start`; nothing changes yet.

        Raises:
            OutOfOrder: positions before `start` are missing.
        """
        known = self._sessions[key].tokens if key in self._sessions else []
        if start > len(known):
            raise OutOfOrder("positions before this one are missing", start, "Send the positions in order, from 0.")
        return [*known[:start], *inputs]

    async def text(self, key: SessionKey, tokens: list[int], start: int, core: Core, limit: int) -> GrowingText:
        """The session's request at the engine, with everything from `start` on just sent."""
        session = self._sessions.setdefault(key, EngineSession())
        self._sessions.move_to_end(key)
        text = session.text
        if text is not None and not (text.open and text.core is core and text.length == start):
            await session.close()
            text = None
        if text is None:
            await self._make_room(len(tokens), limit)
            text = session.text = GrowingText(core)
        text.append(tokens[text.length :])
        session.tokens = tokens
        return text

    async def forget(self, key: SessionKey) -> None:
        """Drop one session."""
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.close()

    async def release(self, task_id: bytes) -> None:
        """Drop all sessions of a task."""
        for key in [key for key in self._sessions if key.task_id == task_id]:
            await self.forget(key)

    async def close(self) -> None:
        """Drop everything."""
        for key in list(self._sessions):
            await self.forget(key)

    async def _make_room(self, needed: int, limit: int) -> None:
        held = sum(session.text.length for session in self._sessions.values() if session.text)
        for session in list(self._sessions.values()):
            if held + needed <= limit:
                return
            if session.text is not None and not session.text.computing:
                held -= session.text.length
                await session.close()
