"""Which candidate the entry of a direct task has found to serve it (docs/direct.md).

The draw says who may serve; a node of the model that the client's request reached knows whose cache holds the prompt.
Its word decides among the candidates of the first attempt, if it comes in time; afterwards, and where that node fails,
the scheduler chooses as always. It is a hint and no authority: whoever knows the request's salt can give it, once.
"""

from __future__ import annotations

import asyncio

from troth.protocol.types import Address
from troth.scheduler.errors import BadRequest, TooLate

CHOICE_SECONDS = 2.0
"""How long the work waits for the entry's word: it has to ask one node or two, each a round trip away."""


class EntryChoice:
    """One task's choice: given at most once, and waited for at most `seconds` after the first who waits."""

    def __init__(self, candidates: tuple[Address, ...], seconds: float = CHOICE_SECONDS) -> None:
        self._candidates = candidates
        self._seconds = seconds
        self._given = asyncio.Event()
        self._closed = False
        self._chosen: Address | None = None

    def give(self, node: Address | None) -> None:
        """The entry's word; None where it names nobody, so that nobody waits for it any longer.

        Raises:
            BadRequest: no candidate.
            TooLate: a choice was made already, by the entry or without it.
        """
        if node is not None and node not in self._candidates:
            raise BadRequest("This node is no candidate of the task", node, f"Name one of {list(self._candidates)}.")
        if self._closed or self._given.is_set():
            raise TooLate("Who serves the task is settled", self._chosen, "Go on with what the stream brings.")
        self._chosen = node
        self._given.set()

    async def wait(self) -> Address | None:
        """Whom the entry named; None if it said nothing in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._given.wait()
        except TimeoutError:
            self._closed = True
        return self._chosen
