"""What a bfloat16 trace is measured by where a prompt makes rows unsteady: the seventh rules.

A prompt can bring a row to where rounding tips it one way or the other, and rows after it with it. If a verifier's own
runs happen to fall alike, an honest node that does not is dozens of times their noise away. So before a verifier says
no, it runs the positions several times more, with last bits of the entering rows that it changes at random. An honest
node is one more of these runs: where they lie far from each other, it may too.

A client may look for prompts on which one engine tips and others hardly ever do. So half of the runs are shaken four
times as strongly, where such a row tips often. Ordinary rows are no more than twice as far away then, so that such a
run counts by half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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

SPREADS = 4.0
"""Standard deviations of lightly shaken runs by which an honest trace may be further away than the furthest run."""
BY_HALF = 0.5
"""What a strongly shaken run counts by: in nine of ten ordinary rows the furthest of eight then adds nothing."""


@dataclass(frozen=True, slots=True)
class ShakenRuns:
    """Runs with changed last bits, two or more of each kind, all rows x columns."""

    lightly: Sequence[NDArray[Any]]
    strongly: Sequence[NDArray[Any]]

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> ShakenRuns:
        """All of them changed alike."""
        return ShakenRuns([change(run) for run in self.lightly], [change(run) for run in self.strongly])

    def noise(self, reference_high: Numbers) -> NDArray[np.float64]:
        """How far they are from float32 in each row at most, in weighted RMS."""
        sigma = dimension_spread(reference_high)
        light, strong = (
            np.max([weighted_rms(run, reference_high, sigma) for run in runs], axis=0)
            for runs in (self.lightly, self.strongly)
        )
        found: NDArray[np.float64] = np.maximum(light, BY_HALF * strong)
        return found


class ShakenWindows:
    """How far a trace is from float32 over long windows, beside that of own runs: window by window, since what tips
    is off in many rows at once.

    Args:
        own: the other own runs; all runs are rows x columns, in float32.
    """

    def __init__(self, claimed: Numbers, own: Sequence[Numbers], shaken: ShakenRuns, reference_high: Numbers) -> None:
        sigma = dimension_spread(reference_high)

        def logarithms(run: Numbers, counts: float = 1.0) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.log(
                np.maximum(counts * weighted_rms(run, reference_high, sigma), RHO_FLOOR)
            )
            return found

        self._claimed, self._lightly = logarithms(claimed), [logarithms(run) for run in shaken.lightly]
        self._others = [*map(logarithms, own), *(logarithms(run, BY_HALF) for run in shaken.strongly)]
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
        furthest = np.maximum(light.max(axis=0), others.max(axis=0)) + SPREADS * light.std(axis=0, ddof=1)
        return float(np.exp(np.max(theirs - furthest)))
