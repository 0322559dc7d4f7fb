"""How many cells of data may be under way, end to end, in each direction of a circuit.

A sender may be WINDOW cells ahead of the credits it got. So an honest circuit never has more than WINDOW cells queued
at a relay, and a relay may close one that has.
"""

from __future__ import annotations

import struct

from troth.overlay.errors import MalformedCell, QuotaExceeded

WINDOW = 256
"""Cells ahead of the credits: 1 MiB in large cells."""
CREDIT_CELLS = 64
"""Cells per CREDIT: one cell back for 64."""
_COUNT = struct.Struct(">H")


class SendWindow:
    """What this end may still send."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WINDOW

    def take(self) -> None:
        """One cell is sent; the caller looked at `left` before."""
        assert self.left > 0
        self.left -= 1

    def credited(self, content: bytes) -> None:
        """A CREDIT came; raises MalformedCell if it grants what was never sent."""
        count = _COUNT.unpack(content)[0] if len(content) == _COUNT.size else 0
        if not count or self.left + count > WINDOW:
            raise MalformedCell("A credit for cells that were never sent", count)
        self.left += count


class ReceiveWindow:
    """What the other end may still send."""

    __slots__ = ("_granted", "_uncredited")

    def __init__(self) -> None:
        self._granted = WINDOW
        self._uncredited = 0

    def received(self) -> bytes | None:
        """One cell came: the content of the CREDIT that is now due, or None. Raises QuotaExceeded."""
        if not self._granted:
            raise QuotaExceeded("More cells than were granted", WINDOW)
        self._granted -= 1
        self._uncredited += 1
        if self._uncredited < CREDIT_CELLS:
            return None
        self._granted += self._uncredited
        self._uncredited = 0
        return _COUNT.pack(CREDIT_CELLS)
