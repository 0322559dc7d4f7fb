"""How a command ends that is interrupted: with code 130 after SIGINT (Ctrl-C) and 143 after SIGTERM, as shells have it.

The first signal cancels what runs, which may take a moment to say what it leaves behind. The second one does not wait
for that. No signal shows a traceback: what was written down before is taken up by the next command.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
AT_ONCE = (
    "\nstopped at once; what was ordered or sent stands: `troth client receipts` and `troth client tabs` show it\n"
)


def interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine gives, on an event loop of its own.

    Raises SystemExit with 128 and the first signal's number where it was interrupted.
    """
    interrupts = _Interrupts()
    try:
        return asyncio.run(interrupts.over(work))
    except (asyncio.CancelledError, KeyboardInterrupt):
        if interrupts.first is None:
            raise
        interrupts.end()
    finally:
        interrupts.leave()


class _Interrupts:
    """The process's handlers while one coroutine runs.

    They are Python's own and not the loop's: whoever reads a typed line puts another one in the place of SIGINT's for a
    while, and brings this one back.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._task: asyncio.Task[Any] | None = None

    async def over(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do it; from here on signals are heard."""
        self._task = asyncio.current_task()
        with _waking(asyncio.get_running_loop()):
            for one in SIGNALS:
                # A shell has what it starts in its background ignore SIGINT, and nohup has others ignored.
                if signal.getsignal(one) is not signal.SIG_IGN:
                    self._before[one] = signal.signal(one, self._hear)
            return await work

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.first is not None:
            self._stop_at_once()
        self.first = number
        assert self._task is not None
        self._task.cancel()
        # The loop may have read what woke it before this ran.
        self._task.get_loop().call_soon_threadsafe(lambda: None)

    def _stop_at_once(self) -> NoReturn:
        assert self.first is not None
        # Not through the streams, which may be at work where the signal came.
        with suppress(OSError):
            os.write(sys.stderr.fileno(), AT_ONCE.encode())
        os._exit(128 + self.first)

    def end(self) -> NoReturn:
        """Leave the process; these handlers stay, so that another signal ends what is still being torn down."""
        assert self.first is not None
        self._before = {}
        raise SystemExit(128 + self.first)

    def leave(self) -> None:
        """The handlers as they were."""
        for one, before in self._before.items():
            signal.signal(one, before)


@contextmanager
def _waking(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """A signal wakes the loop whenever it comes while the work runs.

    Python calls a handler between two of its own instructions. A signal that comes while the loop goes to sleep, or to
    another thread of the process, would be heard only once something else wakes the loop.
    """
    awake, wake = socket.socketpair()
    with awake, wake:
        for end in (awake, wake):
            end.setblocking(False)
        try:
            loop.add_reader(awake, _drain, awake)
        except NotImplementedError:  # Windows' loop has no readers, and is woken by its own
            yield
            return
        before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(awake)


def _drain(awake: socket.socket) -> None:
    with suppress(BlockingIOError):
        awake.recv(4096)
