"""What this scheduler measured of its nodes itself, and what it believes of their own words.

A node may claim any speed. It is believed to be slower than it was seen to be, never faster: the scheduler knows how
long each answer took and how far away the node is. Whoever answers probes late to seem far and fast gains nothing,
since the way and the work together are what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

UNKNOWN_SECONDS = 0.05
"""Per layer, for a node that has neither measured itself nor been measured."""
SMOOTHING = 0.2
"""Weight of the newest measurement in the running mean."""
REMEMBERED_SECONDS = 600.0
"""After which a measurement no longer counts: machines get faster too, and may show it."""
MOST_NODES = 4096


@dataclass(frozen=True, slots=True)
class _Mean:
    seconds: float
    at: float

    def with_newest(self, seconds: float, now: float) -> _Mean:
        if now - self.at > REMEMBERED_SECONDS:
            return _Mean(seconds, now)
        return _Mean(self.seconds + SMOOTHING * (seconds - self.seconds), now)


class NodeMeasurements:
    """Running means per node, bounded in number. `now` is the scheduler's monotonic clock."""

    def __init__(self) -> None:
        self._layers: dict[str, _Mean] = {}
        self._ways: dict[str, _Mean] = {}

    def note_answer(self, name: str, layers: int, seconds: float, now: float) -> None:
        """A node took `seconds`, the way included, for one position through `layers` layers."""
        if layers > 0 and math.isfinite(seconds) and seconds >= 0:
            _note(self._layers, name, max(0.0, seconds - self.round_trip(name, now)) / layers, now)

    def note_round_trip(self, name: str, seconds: float, now: float) -> None:
        """There and back took `seconds` without any work."""
        if math.isfinite(seconds) and seconds >= 0:
            _note(self._ways, name, seconds, now)

    def round_trip(self, name: str, now: float) -> float:
        """Seconds there and back; 0 where nothing was measured."""
        return _fresh(self._ways, name, now) or 0.0

    def seen(self, name: str, now: float) -> float | None:
        """Seconds per layer as seen from here; None where nothing was measured lately."""
        return _fresh(self._layers, name, now)

    def believed(self, name: str, claimed: float, now: float) -> float:
        """Seconds per layer: the slower of claim and measurement; `claimed` 0 is no claim."""
        seen = self.seen(name, now)
        if claimed <= 0 or not math.isfinite(claimed):
            return seen if seen else UNKNOWN_SECONDS
        return max(claimed, seen or 0.0)


def _note(means: dict[str, _Mean], name: str, seconds: float, now: float) -> None:
    known = means.pop(name, None)
    means[name] = _Mean(seconds, now) if known is None else known.with_newest(seconds, now)
    if len(means) > MOST_NODES:
        del means[next(iter(means))]


def _fresh(means: dict[str, _Mean], name: str, now: float) -> float | None:
    known = means.get(name)
    return None if known is None or now - known.at > REMEMBERED_SECONDS else known.seconds
