"""The part of a task's commit window that its nodes may use up.

A node that answers each message just in time could hold a task until the contract slashes the scheduler for it. So the
work with nodes ends while there is time left to post the commitments, or to give the fee back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from troth.scheduler.ledger import Ledger
from troth.scheduler.task_errors import WindowUsedUp

Result = TypeVar("Result")


class CommitWindow:
    """One task's window of `blocks`; it starts to run with `opened`."""

    def __init__(self, ledger: Ledger, blocks: int) -> None:
        self._ledger = ledger
        self._blocks = blocks
        self._opened = asyncio.Event()
        self._last = 0

    def opened(self, block: int) -> None:
        """The task was opened in `block`: its nodes have three quarters of the window, transactions the rest."""
        self._last = block + self._blocks * 3 // 4
        self._opened.set()

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, which is cancelled when the nodes' time is over: raises WindowUsedUp."""
        working = asyncio.create_task(work)
        closing = asyncio.create_task(self._over())
        try:
            await asyncio.wait({working, closing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise WindowUsedUp("The nodes took too long", f"block {self._last}")
        finally:
            for task in (working, closing):
                task.cancel()
            await asyncio.gather(working, closing, return_exceptions=True)

    async def _over(self) -> None:
        await self._opened.wait()
        await self._ledger.reach(self._last)
