"""How far claimed states are from reference states: weighted RMS per row, the ratio rho, and one score for a trace.

A row's distance is the RMS over dimensions of (claimed - reference) / sigma, sigma being the spread of the dimension
over positions. Rho divides it by the distance between the reference at the class's own precision and at float32, so
that noise which a token has for everyone cancels.

A trace's score is the largest geometric mean over any ``WINDOW`` consecutive rows, with every row counted as at least
half the cut. Without windows a cheat in a short output would drown in a long honest prompt; without the floor a few
bit-identical rows would drag any geometric mean to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidStates

Numbers = NDArray[np.float32] | NDArray[np.float64]

WINDOW = 32
"""Rows averaged at a time; fewer give honest bfloat16 noise a chance, more let a short cheat hide."""
SHORTEST_WINDOW = 8
"""A trace with fewer rows is filled up with rows at the floor, since single rows are heavy-tailed."""
ENOUGH_ROWS = 4.0
"""Independent rows of a window that judge it fully: windows of ordinary prompts have four to twelve in bfloat16."""
ROW_FACTOR = 20.0
"""A single row beyond this many cuts rejects a trace: one forged row can steer every later segment."""
PRECISE_ROW_FACTOR = 10.0
"""The same in float32 by the fourth rules. Honest rows reach 0.3 cuts on ordinary prompts, 3.4 on those of a hunt; what
one row may be bent decides which near ties of later segments it turns."""
NARROW_ROW_FACTOR = 3.0
"""By the fifth rules, under which a verifier knows better what rounding does to a row."""
SIGMA_FLOOR = 1e-3
"""Least sigma of a dimension, relative to the RMS of all elements; a constant dimension must not divide by zero."""
LEAST_RATIO = 0.7
"""What a row's rho counts as at least in a mean: a few rows computed precisely must not make up for all others."""
RHO_FLOOR = 1e-3
"""Least denominator of rho, in weighted RMS; below it bfloat16 cannot represent a difference."""
NOISE_FACTOR = 8.0
"""By how much honest float32 runs may be further apart than two of a verifier's own, where these are apart."""
SINGLE_NOISE = 16.0
"""The same for a single float32 row by the fifth rules; ten times NOISE_FACTOR by older ones. Rounding that moves a row
in one direction alone may move two of a verifier's runs by little: by chance, which no client can foresee."""
LONG_WINDOW = 64
"""Rows over which noise of bfloat16 averages out by the sixth rules."""
LONG_MEAN = 1.16
"""Mean rho of such a window beyond which a trace is refused, by the largest noise of all own runs. SmolLM2's honest
ones stay below 0.8 of the excess that this allows, with all kinds of attention but one that rounds before it divides;
the weakest caches and parts in int8 have means of 1.23 and 1.32 in the median."""
UNSTEADY = 1.25
"""How many times as far from float32 as all other own runs a shaken one is, in a row that is measured by it. The
furthest of eight is 1.1 times as far in the median of ordinary rows; were all measured by it, cheats would gain a
tenth."""
BLOCK_ROWS = 1024
"""Rows held in float64 at a time."""


@dataclass(frozen=True, slots=True)
class TraceScore:
    """``score``: largest windowed geometric mean; ``worst_row``: largest single row, at index ``worst_position``."""

    score: float
    worst_row: float
    worst_position: int

    def within(self, cut: float, row_factor: float = ROW_FACTOR) -> bool:
        """Whether the trace passes at ``cut``, and each of its rows at so many cuts."""
        return self.score <= cut and self.worst_row <= cut * row_factor


def dimension_spread(reference: Numbers) -> NDArray[np.float64]:
    """Standard deviation of each column over rows, floored; the RMS of all elements where rows are too few to tell."""
    overall = float(np.sqrt(sum(float(np.sum(np.square(block))) for block in _blocks(reference)) / reference.size))
    if overall == 0:
        raise InvalidStates("The reference states are all zero", reference.shape, "Check the model's weights.")
    if len(reference) < SHORTEST_WINDOW:
        return np.full(reference.shape[1], overall)
    mean = np.mean(reference, axis=0, dtype=np.float64)
    variance = np.zeros(reference.shape[1])
    for block in _blocks(reference):
        variance += np.square(block - mean).sum(axis=0)
    sigma: NDArray[np.float64] = np.maximum(np.sqrt(variance / len(reference)), SIGMA_FLOOR * overall)
    return sigma


def _blocks(rows: Numbers) -> Iterator[NDArray[np.float64]]:
    """Rows in float64, a bounded number at a time: a long trace must not be held several times over."""
    for start in range(0, len(rows), BLOCK_ROWS):
        yield rows[start : start + BLOCK_ROWS].astype(np.float64)


def weighted_rms(claimed: Numbers, reference: Numbers, sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each row, shape (rows,); raises InvalidStates on shapes that differ."""
    if claimed.shape != reference.shape or claimed.ndim != 2 or sigma.shape != claimed.shape[1:]:
        raise InvalidStates("States to compare need one shape", (claimed.shape, reference.shape), "Send every row.")
    distances = np.empty(len(claimed))
    done = 0
    for ours, theirs in zip(_blocks(reference), _blocks(claimed), strict=True):
        difference = (theirs - ours) / sigma
        distances[done : done + len(ours)] = np.sqrt(np.einsum("ij,ij->i", difference, difference) / len(sigma))
        done += len(ours)
    return distances


def rho(claimed: Numbers, own: Sequence[Numbers], reference_high: Numbers) -> NDArray[np.float64]:
    """Each row's distance from float32 relative to that of the own runs at the class's precision, shape (rows,)."""
    return rho_and_rows(claimed, own, reference_high)[0]


def rho_and_rows(
    claimed: Numbers,
    own: Sequence[Numbers],
    reference_high: Numbers,
    shaken_noise: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rho, and what single rows count by under the fourth rules: there no row's noise is less than the median row's.

    A prompt can bring a row to where rounding tips it one way or the other. If the own runs happen to fall as float32
    does, an honest one that does not would be dozens of times their noise away. Shaken runs say so by the seventh
    rules: a row in which their noise is UNSTEADY times as large is measured by it.
    """
    sigma = dimension_spread(reference_high)
    noise = np.maximum(np.max([weighted_rms(run, reference_high, sigma) for run in own], axis=0), RHO_FLOOR)
    if shaken_noise is not None:
        noise = np.where(shaken_noise > UNSTEADY * noise, shaken_noise, noise)
    distances = weighted_rms(claimed, reference_high, sigma)
    return distances / noise, distances / np.maximum(noise, np.median(noise))


@dataclass(frozen=True, slots=True)
class LongWindows:
    """``mean``: how many times as far from float32 as all own runs the worst LONG_WINDOW of rows is; ``weight``: what
    the trace counts by, from 0 to 1."""

    mean: float
    weight: float

    @property
    def excess(self) -> float:
        """1 at the cut. What is compared are squares, since noise of several causes adds up by them: a trace with
        twice the excess has lost twice as much beside rounding."""
        return self.weight * max(self.mean**2 - 1, 0.0) / (LONG_MEAN**2 - 1)


def long_windows(claimed: Numbers, own: Sequence[Numbers], otherwise: Numbers, reference_high: Numbers) -> LongWindows:
    """How far a bfloat16 trace is from float32 over long windows, by the sixth rules.

    ``own`` runs have one attention, ``otherwise`` has another one. A window counts by so much less as the two kinds are
    apart: where noise hangs on how attention is computed, a third kind may have more of it. A shorter trace, and one
    with few independent rows, counts by so much less.
    """
    sigma, width = dimension_spread(reference_high), min(LONG_WINDOW, len(reference_high))
    theirs, *runs = (
        np.log(np.maximum(weighted_rms(run, reference_high, sigma), RHO_FLOOR)) for run in (claimed, *own, otherwise)
    )
    lost = window_means(np.maximum(theirs - np.max(runs, axis=0), np.log(LEAST_RATIO)), width)
    kinds_apart = np.abs(window_means(runs[0], width) - window_means(runs[-1], width))
    independent = float(np.median(independent_rows(own[0], reference_high)))
    weight = min(independent / ENOUGH_ROWS, 1.0) * width / LONG_WINDOW
    return LongWindows(float(np.exp(np.max(lost - kinds_apart))), weight)


def window_means(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The mean of any ``width`` consecutive values."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    means: NDArray[np.float64] = (sums[width:] - sums[:-width]) / width
    return means


def mean_ratio(ratios: NDArray[np.float64]) -> float:
    """The geometric mean of a trace's rho."""
    return float(np.exp(np.mean(np.log(np.maximum(ratios, LEAST_RATIO)))))


def relative_rms(claimed: Numbers, reference: Numbers) -> NDArray[np.float64]:
    """Distance of each row, shape (rows,), every element measured by its own size, at least the row's median size.

    No other row counts: a prompt whose rows are nearly alike has next to no spread over rows, and an honest node's
    rounding would be large beside it. Raises InvalidStates on shapes that differ, and for a row of zeros.
    """
    if claimed.shape != reference.shape or claimed.ndim != 2:
        raise InvalidStates("States to compare need one shape", (claimed.shape, reference.shape), "Send every row.")
    distances = np.empty(len(claimed))
    done = 0
    for ours, theirs in zip(_blocks(reference), _blocks(claimed), strict=True):
        sizes = np.abs(ours)
        sizes = np.maximum(sizes, np.median(sizes, axis=1, keepdims=True))
        if not sizes.all():
            raise InvalidStates("A row of the reference is zero", reference.shape, "Check the model's weights.")
        distances[done : done + len(ours)] = np.sqrt(np.mean(np.square((theirs - ours) / sizes), axis=1))
        done += len(ours)
    return distances


def relative_distances(claimed: Numbers, own: Sequence[Numbers], cut: float) -> NDArray[np.float64]:
    """Each row's distance from the first own run in float32, shape (rows,).

    A row in which another own run is NOISE_FACTOR times less than the cut away, or further, is measured by the largest
    such noise: so far away it counts as one at the cut.
    """
    return relative_rms(claimed, own[0]) / np.maximum(1.0, NOISE_FACTOR * largest_noise(own) / cut)


def precise_single_rows(claimed: Numbers, own: Sequence[Numbers], cut: float) -> NDArray[np.float64]:
    """What single float32 rows count by under the fifth rules, shape (rows,): one that is SINGLE_NOISE times as far
    away as another own run counts as one at NARROW_ROW_FACTOR cuts, unless that is nearer."""
    least = SINGLE_NOISE * largest_noise(own) / (NARROW_ROW_FACTOR * cut)
    return relative_rms(claimed, own[0]) / np.maximum(1.0, least)


def largest_noise(own: Sequence[Numbers]) -> NDArray[np.float64]:
    """How far further own runs are from the first in each row at most, shape (rows,); 0 where there are none."""
    apart = [relative_rms(other, own[0]) for other in own[1:]]
    found: NDArray[np.float64] = np.max(apart, axis=0) if apart else np.zeros(len(own[0]))
    return found


def independent_rows(own: Numbers, reference_high: Numbers) -> NDArray[np.float64]:
    """How many independent rows each window of a trace is worth, by the verifier's own noise, shape (windows,).

    Where a prompt repeats itself, so does rounding: thirty-two rows are then one row, and a mean over them averages
    nothing. n unit vectors of noise whose sum has length s are worth n^2 / s^2, no more than n.
    """
    noise = (own.astype(np.float64) - reference_high) / dimension_spread(reference_high)
    noise /= np.maximum(np.linalg.norm(noise, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    width = min(WINDOW, len(noise))
    sums = np.cumsum(np.concatenate([np.zeros((1, noise.shape[1])), noise]), axis=0)
    squares = np.square(sums[width:] - sums[:-width]).sum(axis=1)
    rows: NDArray[np.float64] = np.minimum(width**2 / np.maximum(squares, 1e-12), width)
    return rows


def trace_score(
    distances: NDArray[np.float64],
    cut: float,
    independent: NDArray[np.float64] | None = None,
    rows: NDArray[np.float64] | None = None,
) -> TraceScore:
    """The score of a whole trace from the distances of its rows.

    ``independent``: the independent rows of each window; one with fewer than ENOUGH_ROWS counts by so much less above
    the floor, and so does a trace that is shorter than a window. None: all count alike. ``rows``: what single rows
    count by, if it is not the distances.
    """
    floor = cut / 2
    if not floor > 0 or not len(distances):
        raise InvalidStates("A score needs a positive cut and at least one row", (cut, len(distances)), "Check both.")
    logs = np.log(np.maximum(distances, floor))
    if len(logs) < SHORTEST_WINDOW:
        logs = np.concatenate([logs, np.full(SHORTEST_WINDOW - len(logs), np.log(floor))])
    width = min(WINDOW, len(logs))
    sums = np.cumsum(np.concatenate([[0.0], logs]))
    single = distances if rows is None else rows
    worst = int(np.argmax(single))
    means = (sums[width:] - sums[:-width]) / width
    if independent is not None:
        weight = np.minimum(independent / ENOUGH_ROWS, 1.0) * min(len(distances) / WINDOW, 1.0)
        means = np.log(floor) + (means - np.log(floor)) * weight
    return TraceScore(
        score=float(np.exp(np.max(means))),
        worst_row=float(single[worst]),
        worst_position=worst,
    )
