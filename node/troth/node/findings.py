"""What `troth node doctor` says of one thing, and the limits that every node has."""

from __future__ import annotations

from typing import NamedTuple

CLOCK_SECONDS = 30.0
"""Half of what the channel tolerates between two clocks."""

GAS_MONEY = 5 * 10**15
"""Wei that pay for about ten own posts at 1 gwei; the node needs them when a scheduler is late."""


class Finding(NamedTuple):
    """One line: which check, whether it passed, what was seen, how to fix it."""

    check: str
    ok: bool
    seen: str
    fix: str
