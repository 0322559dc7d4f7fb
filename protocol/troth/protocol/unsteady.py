"""What a bfloat16 trace is measured by where a prompt makes rows unsteady: the seventh rules.

A prompt can bring a row to where rounding tips it one way or the other, and rows after it with it. If a verifier's own
runs happen to fall alike, an honest node that does not is dozens of times their noise away. So before a verifier says
no, it runs the positions several times more, with last bits of the entering rows that it changes at random. An honest
node is one more of these runs: where they lie far from each other, it may too.

A client may look for prompts on which one engine tips and others hardly ever do. So most of the runs are shaken four
times as strongly, where such a row tips more often. Ordinary rows are no more than twice as far away then, so that such
a run counts by half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.protocol.scores import (
    ENOUGH_ROWS,
    LONG_WINDOW,
    RHO_FLOOR,
    LongWindows,
    Numbers,
    dimension_spread,
    independent_rows,
    weighted_rms,
    window_means,
)

STEADY_SPREAD = 0.04
"""Standard deviation of lightly shaken runs' window means, in logarithms, up to which rows are steady: over the long
windows of ordinary prompts it is 0.025 to 0.045 in eight of ten, on prompts of a hunt 0.1 to 0.36."""
SPREADS = 12.0
"""How many times what is beyond it an honest trace may be further away than the furthest run."""
BY_HALF = 0.5
"""What a strongly shaken run counts by: in nine of ten ordinary rows the furthest of eight then adds nothing."""
Distances = NDArray[np.float64]
"""How far a run is from float32 in each row, in weighted RMS."""


def distances(run: Numbers, reference_high: Numbers) -> Distances:
    """Those of one run, rows x columns, shape (rows,)."""
    return weighted_rms(run, reference_high, dimension_spread(reference_high))


@dataclass(frozen=True, slots=True)
class ShakenRuns:
    """Distances of runs with changed last bits, two or more of each kind."""

    lightly: Sequence[Distances]
    strongly: Sequence[Distances]

    @property
    def noise(self) -> Distances:
        """How far they are from float32 in each row at most."""
        found: Distances = np.maximum(np.max(self.lightly, axis=0), BY_HALF * np.max(self.strongly, axis=0))
        return found


class ShakenWindows:
    """How far a trace is from float32 over long windows, beside that of own runs: window by window, since what tips
    is off in many rows at once.

    Args:
        own: the other own runs; these and what is claimed are rows x columns.
    """

    def __init__(self, claimed: Numbers, own: Sequence[Numbers], shaken: ShakenRuns, reference_high: Numbers) -> None:
        strongly = [BY_HALF * run for run in shaken.strongly]
        self._claimed = _logarithms(distances(claimed, reference_high))
        self._lightly = [_logarithms(run) for run in shaken.lightly]
        self._others = [_logarithms(run) for run in (*(distances(run, reference_high) for run in own), *strongly)]
        self._independent = float(np.median(independent_rows(own[0], reference_high)))

    def worst(self) -> LongWindows:
        """The worst window; a shorter trace, and one with few independent rows, counts by so much less."""
        width = min(LONG_WINDOW, len(self._claimed))
        weight = min(self._independent / ENOUGH_ROWS, 1.0) * width / LONG_WINDOW
        return LongWindows(self._beyond(width), weight)

    def mean(self) -> float:
        """How many times as far as any honest run may be the whole trace is."""
        return self._beyond(len(self._claimed))

    def _beyond(self, width: int) -> float:
        theirs = window_means(self._claimed, width)
        light, others = (np.array([window_means(one, width) for one in runs]) for runs in (self._lightly, self._others))
        furthest = np.maximum(light.max(axis=0), others.max(axis=0))
        unsteady = np.maximum(light.std(axis=0, ddof=1) - STEADY_SPREAD, 0.0)
        return float(np.exp(np.max(theirs - furthest - SPREADS * unsteady)))


def _logarithms(found: Distances) -> Distances:
    logs: Distances = np.log(np.maximum(found, RHO_FLOOR))
    return logs
