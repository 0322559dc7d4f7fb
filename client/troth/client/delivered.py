"""Whether an order whose sending failed can have arrived all the same: only if not, another try is free."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from troth.client.errors import OverlayFailed, WrongSchedulerKey

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_DEEPEST_CAUSE = 16


def never_sent(error: Exception) -> bool:
    """Whether it is certain that nobody got the request."""
    if isinstance(error, OverlayFailed):
        return error.delivered == "no"
    return isinstance(error, WrongSchedulerKey) or any(isinstance(one, _NEVER_SENT) for one in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    for _ in range(_DEEPEST_CAUSE):
        if error is None:
            return
        yield error
        error = error.__cause__
