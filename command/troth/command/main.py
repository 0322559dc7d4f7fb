"""Where `troth` begins: an interrupt is heard before the rest is loaded, which takes longer than many commands."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 an error that was shown, 2 wrong usage, 130 interrupted.

    A sub-command's error may carry its own `exit_code`.
    """
    # Another handler is the caller's. A shell has what it starts in its background ignore the signal.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _leave)
    try:
        from troth.command.root import run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # No exception: an import would drop it where it comes within a callback, and say so. Nothing is begun yet.
    os._exit(INTERRUPTED)
