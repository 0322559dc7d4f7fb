"""The event loop that every long-lived process of Troth runs on: uvloop, and threads that give way quickly."""

from __future__ import annotations

import asyncio
import gc
import sys
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


async def beside(size: int, job: Callable[..., Result], *arguments: Any) -> Result:
    """What ``job`` returns; in a thread where it goes over more than ``LOOP_BYTES``, so that others are not held up."""
    if size <= LOOP_BYTES:
        return job(*arguments)
    return await asyncio.to_thread(job, *arguments)
