"""Work that a process does turn by turn for as long as it runs, whatever one turn of it meets.

A node that no longer answers summons loses its stake, and a relay that no longer sweeps keeps circuits for ever. So
nothing ends such work but whoever cancels its task: neither an error that nobody foresaw, nor a cancellation that was
meant for something a turn waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Self

from troth.chain.errors import ChainError
from troth.protocol.errors import TrothError

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds between two turns after many failures."""
MOST_DOUBLINGS = 32
"""Of a pause."""


def is_asked_to_end() -> bool:
    """Whether somebody cancels the current task; else a CancelledError in it comes from something that it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Duty:
    """Takes turn after turn until its task is cancelled.

    Args:
        name: what it does, in words for logs and readiness, such as "answering summons".
        turn: does what is due now.
        every: seconds from one turn to the next, or what says so after each turn.
        retry: seconds from a first turn that failed to the next; None: ``every``. A number doubles with each failure.
        longest: what it grows to.
        stale_after: seconds without a turn that succeeded until ``reason`` says so.
        private: whether an error's words may hold somebody's prompt; then only its kind is told.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[object]],
        *,
        every: float | Callable[[], float] = 2.0,
        retry: float | None = None,
        longest: float = LONGEST_PAUSE,
        stale_after: float = 120.0,
        private: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._turn = turn
        self._every = every
        self._retry = every if retry is None else retry
        self._failures = 0
        self._longest = longest
        self._stale_after = stale_after
        self._private = private
        self._clock = clock
        self._done_at = clock()
        self._pause = 0.0
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    @property
    def age(self) -> float:
        """Seconds since the last turn that succeeded."""
        return self._clock() - self._done_at

    @property
    def trouble(self) -> str:
        """Why the last turn failed; empty if it did not."""
        return "" if self.failure is None else self._words_of(self.failure)

    @property
    def reason(self) -> str:
        """Why this is not ready, for /readyz; empty while turns succeed often enough."""
        if self.age <= self._stale_after:
            return ""
        return f"{self.name} was last done {self.age:.0f} s ago" + (f": {self.trouble}" if self.failure else "")

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._task is not None

    def start(self) -> Self:
        """Run in a task of its own, which `stop` ends."""
        self._task = asyncio.create_task(self.run(), name=self.name)
        return self

    async def stop(self) -> None:
        """End the task, in the middle of a turn if need be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def hurry(self) -> None:
        """The next turn is due now."""
        self._due.set()

    async def run(self) -> None:
        """Until cancelled. What fails is logged once, and tried again after a pause that grows."""
        while True:
            self._due.clear()
            try:
                await self._turn()
            except asyncio.CancelledError as error:
                if is_asked_to_end():
                    raise
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - also what nobody foresaw: the next turn may find all well again
                self._failed(error)
            else:
                self._succeeded()
            await self._rest(self._pause)

    async def _rest(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it can swallow the cancellation that ends this task.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._due.wait()

    def _succeeded(self) -> None:
        if self.failure is not None:
            log.warning("%s goes on", self.name)
        self.failure, self._failures, self._done_at = None, 0, self._clock()
        self._pause = self._every() if callable(self._every) else self._every

    def _failed(self, error: BaseException) -> None:
        words = self._words_of(error)
        if words != self.trouble:
            # An error of ours says all in its words, such as that the chain is away, and so does a full disk's.
            trace = None if self._private or isinstance(error, TrothError | OSError) else error
            log.error("%s failed and is tried again: %s", self.name, words, exc_info=trace)
        self.failure = error
        grown = self._retry() if callable(self._retry) else min(self._retry * 2.0**self._failures, self._longest)
        self._pause, self._failures = grown, min(self._failures + 1, MOST_DOUBLINGS)

    def _words_of(self, error: BaseException) -> str:
        if isinstance(error, asyncio.CancelledError):
            return "something that it waited for was cancelled"
        told = "" if self._private and not isinstance(error, ChainError | OSError) else str(error)
        return told or type(error).__name__
