"""How everything that is worth asking again is asked again: by stamina, in silence, with pauses that are known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import stamina
from stamina import instrumentation

FIRST_PAUSE = 0.2
"""Seconds before the first repetition; each further pause is twice as long."""
LONGEST_PAUSE = 2.0

# Its own hooks would print a warning on the terminal of whoever waits, and count where no endpoint looks.
instrumentation.set_on_retry_hooks([])


def attempts_of(
    worth: Callable[[Exception], bool],
    *,
    most: int | None = None,
    seconds: float | None = None,
    pause: float | None = None,
) -> AsyncIterator[stamina.Attempt]:
    """Attempts for ``async for``, each used by ``with``, until one does not fail; the last failure is raised.

    Args:
        worth: whether a failure may pass; any other ends it at once.
        most: attempts; seconds: since the first, after which no other begins.
        pause: seconds between two attempts; by default they grow.
    """
    return aiter(
        stamina.retry_context(
            worth,
            attempts=most,
            timeout=seconds,
            wait_initial=FIRST_PAUSE if pause is None else pause,
            wait_max=LONGEST_PAUSE if pause is None else pause,
            wait_jitter=0.0,
        )
    )
