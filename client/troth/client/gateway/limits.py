"""What the wallet's owner allows, and how many orders are under way at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What the wallet's owner allows: wei for one request, wei for all orders of a day (UTC). None: no limit."""

    request: int | None = None
    day: int | None = None


MOST_FOLLOWED = 64
"""Orders whose verdict is awaited, with those being answered: each holds a connection to the scheduler."""

RETRY_AFTER = 5
