"""The event loop that every long-lived process of Troth runs on: uvloop, and threads that give way quickly."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another waits for it. Python's own 5 ms are longer than most of what
a message needs: a proof that a thread computes would hold up every token that passes through the loop meanwhile."""

COLLECTED_AFTER = (20_000, 20, 20)
"""Objects that were made and not freed before the collector of garbage looks for circles among the youngest, and how
often it does before it looks among older ones. A message makes thousands of objects and frees them without it: with
Python's own 700 it would look several times in each."""

LOOP_BYTES = 256 * 1024
"""Bytes that are hashed or copied on the loop itself: about a millisecond of Keccak."""

ROUND_SECONDS = 0.002
"""How long the loop may be at one round of all that is ready, before those who can wait do."""


def run(main: Coroutine[object, object, Result]) -> Result:
    """``asyncio.run`` for a process that serves; on Windows, which uvloop does not support, on Python's own loop."""
    sys.setswitchinterval(SWITCH_SECONDS)
    spare_collector()
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def spare_collector() -> None:
    """What is in memory now stays there, and is not looked through by the collector of garbage any more: with all that
    is imported it takes tens of milliseconds each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


class Rounds:
    """How long the loop has been at its present round, as far as those know who ask."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = 0.0

    async def give_way(self) -> None:
        """For who is one of many: go on in the next round, if the loop has looked for no messages for a while."""
        if self._is_long():
            await asyncio.sleep(0)

    def _is_long(self) -> bool:
        now, loop = time.monotonic(), asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._began = loop, now
            loop.call_soon(self._end)
        return now - self._began > ROUND_SECONDS

    def _end(self) -> None:
        self._loop = None


rounds = Rounds()
"""Of this process' loop."""


async def beside(size: int, job: Callable[..., Result], *arguments: Any) -> Result:
    """What ``job`` returns; in a thread where it goes over more than ``LOOP_BYTES``, so that others are not held up."""
    if size <= LOOP_BYTES:
        return job(*arguments)
    return await asyncio.to_thread(job, *arguments)
