"""How loaded a node is: the load factor F = L · Q / C of PlanetServe (section 3.3).

L is the moving average of the latency to serve a request, smoothed as round trips are in TCP; Q the requests that wait;
C how many run at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

ALPHA: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class Load:
    """One node's word about its load.

    Args:
        latency: L, seconds.
        queued: requests that wait.
        running: requests that are computed.
        capacity: C, requests that can be computed at once, at least 1.
        pace: seconds to compute one prompt token, moving average.
        pending: prompt tokens of all of them that are still to be computed, less what its cache has.
        taken: requests that it took since it started, whoever dealt them, its own entries' too; modulo 2³².
    """

    latency: float = 0.0
    queued: int = 0
    running: int = 0
    capacity: int = 1
    pace: float = 0.0
    pending: int = 0
    taken: int = 0

    @property
    def factor(self) -> float:
        """L · Q / C, seconds: about what a request would wait."""
        return self.latency * self.queued / self.capacity


class LatencyAverage:
    """L: the first sample as it is, each further one with weight `ALPHA`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._samples = 0

    def add(self, seconds: float) -> None:
        """Note how long a request took. What is no time is left out."""
        if not math.isfinite(seconds) or seconds < 0:
            return
        self._samples += 1
        self.seconds = seconds if self._samples == 1 else (1 - ALPHA) * self.seconds + ALPHA * seconds
