"""The event loop that every long-lived process of Troth runs on: uvloop, and threads that give way quickly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another waits for it. Python's own 5 ms are longer than most of what
a message needs: a proof that a thread computes would hold up every token that passes through the loop meanwhile."""


def run(main: Coroutine[object, object, Result]) -> Result:
    """``asyncio.run`` for a process that serves; on Windows, which uvloop does not support, on Python's own loop."""
    sys.setswitchinterval(SWITCH_SECONDS)
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
