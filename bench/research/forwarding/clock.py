"""Simulated time: events in order, ties in the order in which they were set."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._set = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Do something at a time that is not past."""
        self._set += 1
        heapq.heappush(self._events, (max(when, self.now), self._set, what))

    def run(self, going: Callable[[], bool]) -> None:
        """Let events happen until there are none, or `going` says no."""
        while self._events and going():
            self.now, _, what = heapq.heappop(self._events)
            what()
