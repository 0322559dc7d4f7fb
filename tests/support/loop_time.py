"""How long an event loop is at one callback, in processor time of its thread."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any


class LoopTime:
    """A context: ``longest`` seconds of one callback of Python's own loop in this thread, and ``what`` it was.

    Processor time, so that a loaded machine changes nothing; a callback that waits for something else takes none.
    """

    def __init__(self) -> None:
        self.longest, self.what = 0.0, ""
        self._run: Any = None

    def __enter__(self) -> LoopTime:
        self._run = run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            if (took := time.thread_time() - began) > self.longest:
                self.longest, self.what = took, f"{took * 1e3:.1f} ms: {handle!r}"

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
