"""How fast this machine is: seconds per layer and position, as the engine measured them."""

from __future__ import annotations

SMOOTHING = 0.1
"""Weight of the newest measurement in the running mean."""


class Meter:
    """Running means of decode (one position alone) and prefill (many at once); 0 before anything was measured."""

    def __init__(self) -> None:
        self.decode_seconds = 0.0
        self.prefill_seconds = 0.0

    def note(self, layers: int, positions: int, seconds: float) -> None:
        """The model took `seconds` for so many positions through so many layers, without waiting in line."""
        if layers < 1 or positions < 1 or seconds <= 0:
            return
        each = seconds / (layers * positions)
        if positions == 1:
            self.decode_seconds = _mean(self.decode_seconds, each)
        else:
            self.prefill_seconds = _mean(self.prefill_seconds, each)


def _mean(old: float, newest: float) -> float:
    return old + SMOOTHING * (newest - old) if old else newest
