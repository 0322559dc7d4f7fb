"""A verifier's judgement of states: exact equality, or a calibrated score, by the execution class.

exact      every element equal, bit for bit
float32    weighted RMS against the verifier's own prefill; by the second rules RMS relative to each element's size;
           by the fourth a single row may be no more than ten cuts away, by the fifth three
bfloat16   rho, against the verifier's prefills at bfloat16 and at float32; by the sixth rules over long windows, too,
           against one more with other attention; by the seventh what is refused is measured by shaken runs as well
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from troth.protocol.doubts import EIGHTH_RULES, rules_version
from troth.protocol.errors import InvalidStates
from troth.protocol.scores import (
    NARROW_ROW_FACTOR,
    PRECISE_ROW_FACTOR,
    ROW_FACTOR,
    dimension_spread,
    independent_rows,
    long_windows,
    mean_ratio,
    precise_single_rows,
    relative_distances,
    rho_and_rows,
    trace_score,
    weighted_rms,
)
from troth.protocol.statistics import PaperStatistics, paper_statistics
from troth.protocol.tensors import Dtype, RowArray, finite, widen
from troth.protocol.types import Hash32
from troth.protocol.unsteady import ShakenRuns, ShakenWindows


class Tolerance(Protocol):
    """What of an execution class says how far two honest runs may differ."""

    @property
    def dtype(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def state_cut(self) -> int: ...
    @property
    def calibration(self) -> Hash32: ...


@dataclass(frozen=True, slots=True)
class StateReport:
    """Judgement of a trace. In an exact class ``score`` is the share of elements that differ, of rows where only their
    hashes were compared, and ``cut`` is 0.

    ``statistics`` is None where the claimed states are not finite, which is always a rejection, or not at hand.
    ``mean`` is the mean of rho over all rows in a bfloat16 class, else 0. A single row may be ``row_factor`` cuts away.
    ``excess``: see `scores.LongWindows`; above 1 is refused, 0 where it was not looked at. ``staked``: whether a court
    may take stake for it.
    """

    score: float
    cut: float
    accepted: bool
    worst_row: float
    worst_position: int
    statistics: PaperStatistics | None
    mean: float = 0.0
    row_factor: float = ROW_FACTOR
    excess: float = 0.0
    staked: bool = False

    @property
    def cuts(self) -> float:
        """How many cuts away the trace is, a single row by its own, larger cut; above 1 is refused. Needs a cut."""
        return max(self.by_rows, self.excess)

    @property
    def held(self) -> float:
        """How many of them a court may take stake for. Long windows are among them by the eighth rules alone, and only
        beside shaken runs: some ways to round attention lie far beyond the excess at the cut on prompts that a client
        can type, and nobody is slashed for what was typed."""
        return self.cuts if self.staked else self.by_rows

    @property
    def by_long_windows(self) -> bool:
        """Whether nothing but these refuses the trace."""
        return not self.accepted and self.cut > 0 and self.by_rows <= 1

    @property
    def by_rows(self) -> float:
        """How many cuts away single rows and windows of 32 are."""
        return max(self.score, self.worst_row / self.row_factor) / self.cut


def judge_states(
    rules: Tolerance,
    claimed: RowArray,
    reference: RowArray,
    reference_high: NDArray[np.float32] | None = None,
    *others: RowArray,
    otherwise: RowArray | None = None,
    shaken: ShakenRuns | None = None,
) -> StateReport:
    """Compare an inferencer's rows with the verifier's own, both rows x columns in the class's number format.

    ``reference_high`` is the verifier's float32 prefill, needed in a tolerant bfloat16 class. ``others``, at a second
    look, are further runs of the verifier's: distances are measured by the largest noise. ``otherwise`` is one with
    other attention, by which the sixth rules look at long windows. ``shaken``, at a third look, are some with other
    last bits, which say in bfloat16 what rounding can do there. Raises InvalidStates where
    shapes or formats differ or a reference is not finite: those are the caller's faults, not the inferencer's.
    """
    dtype = Dtype(rules.dtype)
    own = (reference, *others, *(() if otherwise is None else (otherwise,)))
    for run in own:
        _require_comparable(claimed, run, dtype)
    if not finite(claimed, dtype):
        return StateReport(math.inf, _cut(rules), False, math.inf, _first_not_finite(claimed, dtype), None)
    statistics = paper_statistics(claimed, reference, dtype)
    if rules.exact:
        return _judge_exact(claimed, reference, statistics)
    distances, rows = _distances(rules, claimed, own, shaken, reference_high)
    cut = _cut(rules)
    independent = None
    if reference_high is not None and rules_version(rules.calibration) >= 2:
        independent = independent_rows(widen(reference, dtype), reference_high)
    measured, row_factor = trace_score(distances, cut, independent, rows), single_row_factor(rules)
    mean, beyond = mean_ratio(distances) if dtype is Dtype.BFLOAT16 else 0.0, 0.0
    if otherwise is not None and reference_high is not None:
        theirs, *runs, other = (widen(run, dtype) for run in (claimed, *own))
        beyond = long_windows(theirs, runs, other, reference_high).excess
        if shaken is not None:
            beside = ShakenWindows(theirs, (*runs, other), shaken, reference_high)
            mean, beyond = min(mean, beside.mean()), min(beyond, beside.worst().excess)
    return StateReport(
        score=measured.score,
        cut=cut,
        accepted=measured.within(cut, row_factor) and beyond <= 1,
        worst_row=measured.worst_row,
        worst_position=measured.worst_position,
        statistics=statistics,
        mean=mean,
        row_factor=row_factor,
        excess=beyond,
        staked=shaken is not None and rules_version(rules.calibration) >= EIGHTH_RULES,
    )


def judge_hashes(claimed: Sequence[bytes], own: Sequence[bytes]) -> StateReport:
    """Compare hashes of an inferencer's rows with those of the verifier's own, in an exact class; as many of both."""
    differing = [position for position, pair in enumerate(zip(claimed, own, strict=True)) if pair[0] != pair[1]]
    worst = differing[0] if differing else 0
    share = len(differing) / max(len(own), 1)
    return StateReport(share, 0.0, not differing, float(bool(differing)), worst, None)


def single_row_factor(rules: Tolerance) -> float:
    """How many cuts away a single row may be."""
    version = rules_version(rules.calibration)
    if Dtype(rules.dtype) is not Dtype.FLOAT32 or version < 4:
        return ROW_FACTOR
    return PRECISE_ROW_FACTOR if version < 5 else NARROW_ROW_FACTOR


def _cut(rules: Tolerance) -> float:
    return 0.0 if rules.exact else rules.state_cut / 1_000_000


def _judge_exact(claimed: RowArray, reference: RowArray, statistics: PaperStatistics) -> StateReport:
    bits = np.uint32 if claimed.dtype == np.float32 else np.uint16
    differing = np.ascontiguousarray(claimed).view(bits) != np.ascontiguousarray(reference).view(bits)
    shares = differing.mean(axis=1)
    worst = int(np.argmax(shares))
    return StateReport(float(differing.mean()), 0.0, not differing.any(), float(shares[worst]), worst, statistics)


def _distances(
    rules: Tolerance,
    claimed: RowArray,
    own: Sequence[RowArray],
    shaken: ShakenRuns | None,
    reference_high: NDArray[np.float32] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row's distance, and what it counts by as a single row."""
    version, dtype = rules_version(rules.calibration), Dtype(rules.dtype)
    if dtype is Dtype.FLOAT32:
        if version >= 2:
            found = relative_distances(claimed, own, _cut(rules))
        else:
            found = weighted_rms(claimed, own[0], dimension_spread(own[0]))
        return found, precise_single_rows(claimed, own, _cut(rules)) if version >= 5 else found
    if reference_high is None:
        raise InvalidStates("A bfloat16 class compares against float32 as well", None, "Run the float32 prefill too.")
    if reference_high.shape != claimed.shape or not bool(np.isfinite(reference_high).all()):
        raise InvalidStates(
            "The float32 reference has another shape or is not finite", reference_high.shape, "Rerun it."
        )
    noise = None if shaken is None else shaken.noise
    ratios, rows = rho_and_rows(widen(claimed, dtype), [widen(one, dtype) for one in own], reference_high, noise)
    return ratios, rows if version >= 4 else ratios


def _require_comparable(claimed: RowArray, reference: RowArray, dtype: Dtype) -> None:
    if claimed.shape != reference.shape or claimed.ndim != 2 or claimed.size == 0:
        raise InvalidStates("States to compare need one shape", (claimed.shape, reference.shape), "Send every row.")
    if claimed.dtype != np.dtype(dtype.storage) or reference.dtype != np.dtype(dtype.storage):
        found = (str(claimed.dtype), str(reference.dtype))
        raise InvalidStates(f"States of this class are {dtype.storage} arrays", found, "Convert them first.")
    if not finite(reference, dtype):
        raise InvalidStates("The verifier's own states hold NaN or infinity", reference.shape, "Check the weights.")


def _first_not_finite(claimed: RowArray, dtype: Dtype) -> int:
    return int(np.argmin(np.isfinite(widen(claimed, dtype)).all(axis=1)))
