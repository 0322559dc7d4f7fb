"""An answer of which nobody wants more: its reader left, or met what it had waited for.

The scheduler is told so once, and writes no more; what is written by then is paid, and checked like any other answer.
Where it is not reached the answer goes on to its end, and is paid whole.

That it is told is written down before, so that a process which takes the order up after a crash knows it, too. An
answer that ends early and that nobody asked to end was cut short by its scheduler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from troth.client.orders.calls import MarketCalls
from troth.client.orders.journal import OrderJournal, OrderRecord
from troth.client.orders.session import FAILURES, PayerSession
from troth.protocol.market.bodies import Submission
from troth.protocol.request import Request
from troth.protocol.types import Hash32

END_SECONDS = 3.0
"""How long whoever interrupts a client waits until its orders are told."""
_log = logging.getLogger(__name__)


class EarlyEnd:
    """``wanted`` is set by who reads the answer; ``asked``: its scheduler was told, or was about to be, be it by a
    process before this one."""

    def __init__(self, wanted: asyncio.Event | None, request: Request, entry: OrderRecord) -> None:
        self._wanted = asyncio.Event() if wanted is None else wanted
        self._request = request
        self._order = entry.identifier
        self._task: asyncio.Task[None] | None = None
        self.asked = entry.asked_to_end

    def watch(self, journal: OrderJournal, sent: Submission, reached: Callable[[], Awaitable[MarketCalls]]) -> None:
        """Tell the scheduler of an admitted order as soon as no more is wanted; once, however often this is called."""
        if self._task is None and self._request.may_end_early:
            self._task = asyncio.create_task(self._tell(journal, sent.salt, reached), name="ending an answer")

    def close(self) -> None:
        """The answer is whole, or nobody listens any more."""
        if self._task is not None:
            self._task.cancel()

    def kept(self, tokens: list[int], written: int) -> list[int]:
        """What belongs to the answer: a node that tells its tokens itself is ahead of the scheduler that ends it."""
        return tokens[:written] if self.asked else tokens

    def fits(self, written: int) -> bool:
        """Whether an answer without an end token may have this length; one that nobody ended has all that was
        ordered, and none is empty."""
        early = self._request.may_end_early and self.asked
        return (early and written > 0) or written == self._request.max_tokens

    async def _tell(self, journal: OrderJournal, salt: Hash32, reached: Callable[[], Awaitable[MarketCalls]]) -> None:
        await self._wanted.wait()
        try:
            journal.asked_to_end(self._order)
            self.asked = True
            await (await reached()).end(self._order, salt)
        except FAILURES as error:
            _log.info("the answer goes on to its end: %s", error)


async def end_answers(session: PayerSession, entries: Iterable[OrderRecord]) -> bool:
    """Have no more written of the answers of these orders; whether all their schedulers took the word in time."""
    try:
        async with asyncio.timeout(END_SECONDS):
            told = await asyncio.gather(*[_end_answer(session, entry) for entry in entries], return_exceptions=True)
    except TimeoutError:
        return False
    failed = [one for one in told if one is not None]
    for error in failed:
        if not isinstance(error, FAILURES):
            raise error
        _log.info("an answer goes on to its end: %s", error)
    return not failed


async def _end_answer(session: PayerSession, entry: OrderRecord) -> None:
    assert entry.submission is not None
    session.journal.asked_to_end(entry.identifier)
    calls = await session.calls(session.tab_context_of(entry.tab))
    await calls.end(entry.identifier, entry.submission.salt)
