"""How many requests a node took lately, read from the rising counter that it tells with its load."""

from __future__ import annotations

from typing import Final

from troth.overlay.hash_radix.members import SILENCE

_MODULUS: Final = 2**32


class Taken:
    """One node's counter as it was heard. `lately` is the caller's to let decay, with what it dealt itself.

    Only rises count. Words arrive out of order, so that a lower value is an older word, unless none as high as before
    was heard for `SILENCE`: then the node restarted, and is counted on from there. The first word counts nothing.
    """

    __slots__ = ("_at", "_last", "lately")

    def __init__(self) -> None:
        self._last: int | None = None
        self._at = 0.0
        self.lately = 0.0

    def hear(self, taken: int, now: float) -> None:
        """The node's word: it took so many since it started, modulo 2³²."""
        ahead = 0 if self._last is None else (taken - self._last) % _MODULUS
        if ahead >= _MODULUS // 2:
            if now - self._at <= SILENCE:
                return
            ahead = 0
        self.lately += ahead
        self._last, self._at = taken % _MODULUS, now
