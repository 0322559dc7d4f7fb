"""The driver's side of its lines to the nodes: who answers what; a node that fails or goes ends every wait."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from research.forwarding.real.messages import (
    Ask,
    Counted,
    Failed,
    Finish,
    Line,
    Look,
    Members,
    Named,
    Ready,
    Refused,
    ToDriver,
    ToNode,
    Written,
)

_Kind = TypeVar("_Kind", Ready, Named, Counted)
ANSWER_SECONDS = 180.0
"""A start of vLLM takes a minute while all nodes start at once."""


class NodeFailed(RuntimeError):
    """A node cannot go on, or is gone."""


class Nodes:
    """All nodes of a run, in the order of their numbers once `ready` returned."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._answers: list[asyncio.Queue[ToDriver]] = []
        self._requests: dict[int, asyncio.Queue[ToDriver]] = {}
        self._hearing: set[asyncio.Task[None]] = set()
        self._failure: Failed | None = None
        self.members: tuple[Ready, ...] = ()

    def join(self, line: Line) -> None:
        """A node has called."""
        queue: asyncio.Queue[ToDriver] = asyncio.Queue()
        self._lines.append(line)
        self._answers.append(queue)
        hearing = asyncio.create_task(self._hear(line, queue))
        self._hearing.add(hearing)
        hearing.add_done_callback(self._hearing.discard)

    @property
    def joined(self) -> int:
        """Nodes that have called."""
        return len(self._lines)

    def fail(self, reason: str) -> None:
        """End all waits."""
        self._failure = self._failure or Failed(reason)
        for queue in (*self._answers, *self._requests.values()):
            queue.put_nowait(self._failure)

    async def ready(self) -> None:
        """Wait for all engines, and introduce the nodes to each other."""
        found = [await self._answer(place, Ready) for place in range(len(self._lines))]
        order = sorted(range(len(found)), key=lambda place: found[place].number)
        self.members = tuple(found[place] for place in order)
        self._lines = [self._lines[place] for place in order]
        self._answers = [self._answers[place] for place in order]
        await self.tell(Members(self.members))

    async def tell(self, message: ToNode) -> None:
        """The same to all."""
        for line in self._lines:
            await self._send(line, message)

    async def looks(self) -> list[Named]:
        """What each node knows of its group now."""
        await self.tell(Look())
        return [await self._answer(place, Named) for place in range(len(self._lines))]

    async def finish(self) -> list[Counted]:
        """End the run everywhere; what was counted."""
        await self.tell(Finish())
        return [await self._answer(place, Counted) for place in range(len(self._lines))]

    async def ask(self, entry: int, message: Ask) -> asyncio.Queue[ToDriver]:
        """A request enters at a node; what is said of it comes into the queue."""
        queue = self._requests[message.number] = asyncio.Queue()
        if self._failure is not None:
            queue.put_nowait(self._failure)
        else:
            await self._send(self._lines[entry], message)
        return queue

    def done(self, number: int) -> None:
        """Nothing more is said of this request."""
        self._requests.pop(number, None)

    async def close(self) -> None:
        """Hang up: the nodes end by themselves."""
        for line in self._lines:
            line.close()
        for hearing in self._hearing:
            hearing.cancel()
        await asyncio.gather(*self._hearing, return_exceptions=True)

    async def _send(self, line: Line, message: ToNode) -> None:
        try:
            await line.send(message)
        except ConnectionError as error:
            self.fail("a node has ended")
            raise NodeFailed("a node has ended") from error

    async def _answer(self, place: int, kind: type[_Kind]) -> _Kind:
        if self._failure is not None:
            raise NodeFailed(self._failure.reason)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                message = await self._answers[place].get()
        except TimeoutError as error:
            raise NodeFailed(f"a node did not answer within {ANSWER_SECONDS:.0f} s") from error
        if not isinstance(message, kind):
            raise NodeFailed(message.reason if isinstance(message, Failed) else f"a node said {message}")
        return message

    async def _hear(self, line: Line, answers: asyncio.Queue[ToDriver]) -> None:
        async for message in line.to_driver():
            if isinstance(message, Failed):
                self.fail(message.reason)
            elif isinstance(message, Written | Refused):
                if message.number in self._requests:
                    self._requests[message.number].put_nowait(message)
            else:
                answers.put_nowait(message)
        self.fail("a node has ended")
