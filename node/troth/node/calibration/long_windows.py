"""Whether a bfloat16 class may judge long windows (eighth rules): what honest runs of this machine need there, and
what cheats show that no window of 32 rows does.

The cut is a constant of the protocol (`scores.LONG_MEAN`); what is measured is how often it would refuse an honest run
here, and how much room it leaves to runs that were not measured. A class without that room gets the fifth rules, which
look at no long window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from troth.node.calibration.conditions import HONEST, Condition
from troth.node.calibration.intervals import Share, share
from troth.node.calibration.thresholds import Numbers
from troth.node.calibration.verifying import LONG_MEANS, LONG_WEIGHTS, Measured
from troth.protocol.findings import LOOKED_AT
from troth.protocol.scores import LONG_MEAN, LONG_WINDOW, LongWindows, mean_ratio

ROOM = 0.5
"""The excess at the cut that honest runs of a calibration may reach, at most: prompts that it does not run reach more.
SmolLM2's honest runs reach nothing on ordinary prompts, and 0.79 on hostile ones."""
FEWEST = 8
"""Runs from which a tail is told."""


@dataclass(frozen=True, slots=True)
class LongWindowOutcome:
    """One condition: the median over its runs of the worst segment's mean, its largest excess, and how many are refused
    by long windows. ``tail``: the chance that a run is, by a normal tail of the means' logarithms; None: too few."""

    condition: Condition
    mean: float
    worst: float
    refused: Share
    tail: float | None


@dataclass(frozen=True, slots=True)
class LongWindowFindings:
    """Of honest runs together, and of each condition that was looked at. ``why_not``: what keeps the class from the
    eighth rules; empty where nothing does. Every run is one task of the whole text. Honest ones that agree to the last
    bit, as batches of several sizes may, are one run in ``refused``."""

    refused: Share
    worst: float
    tail: float | None
    outcomes: tuple[LongWindowOutcome, ...]
    why_not: str

    @property
    def supported(self) -> bool:
        """Whether the class may judge long windows."""
        return not self.why_not


def refused_over_long_windows(part: Measured) -> np.ndarray:
    """Per run of a part, whether long windows refuse it where a verifier looks at them; False where none were
    measured."""
    refused = np.zeros(len(part["margins"]), dtype=bool)
    for index, windows in _windows(part):
        distances = part[f"distances-{index}"].astype(np.float64)
        looked_at = np.array([mean_ratio(row) > LOOKED_AT for row in distances])
        refused |= looked_at & (np.array([one.excess for one in windows]) > 1)
    return refused


def look_at_long_windows(conditions: Sequence[Condition], measured: Mapping[str, list[Measured]]) -> LongWindowFindings:
    """What was measured over long windows."""
    looked_at = [one for one in conditions if _is_measured(measured[one.name])]
    outcomes = tuple(_outcome(one, measured[one.name]) for one in looked_at)
    honest = [one for one in outcomes if one.condition.kind == HONEST]
    worst = max((one.worst for one in honest), default=math.inf)
    refused = _share_of_different([part for one in honest for part in measured[one.condition.name]])
    told = [one.tail for one in honest if one.tail is not None]
    missing = [one.name for one in conditions if one.kind == HONEST and one not in looked_at]
    rows = min((part["distances-0"].shape[1] for one in looked_at for part in measured[one.name]), default=0)
    return LongWindowFindings(
        refused, worst, max(told, default=None), outcomes, _why_not(missing, rows, refused, worst)
    )


def _is_measured(parts: Sequence[Measured]) -> bool:
    return bool(parts) and all(LONG_MEANS.format(0) in part for part in parts)


def _share_of_different(parts: Sequence[Measured]) -> Share:
    """How many runs are refused, of those that differ: what is the same run again tells nothing more."""
    found: dict[tuple[LongWindows, ...], bool] = {}
    for part in parts:
        runs = zip(*(windows for _, windows in _windows(part)), strict=True)
        found |= dict(zip(runs, map(bool, refused_over_long_windows(part)), strict=True))
    return share(sum(found.values()), len(found))


def _why_not(missing: Sequence[str], rows: int, refused: Share, worst: float) -> str:
    if missing:
        return f"long windows of {missing[0]!r} were not measured"
    if rows < LONG_WINDOW:
        return f"traces of {rows} rows are shorter than a long window of {LONG_WINDOW}; use longer texts (--tokens)"
    if refused.count:
        return f"long windows refuse {refused.count} of {refused.total} honest runs"
    if worst > ROOM:
        return f"an honest run reaches {worst:.2f} of the excess at the cut, and may reach {ROOM:g}"
    return ""


def _outcome(condition: Condition, parts: Sequence[Measured]) -> LongWindowOutcome:
    means, excesses, refused = [], [], 0
    for part in parts:
        by_segment = [windows for _, windows in _windows(part)]
        runs = list(zip(*by_segment, strict=True))
        means += [max(one.mean for one in run) for run in runs]
        excesses += [max(one.excess for one in run) for run in runs]
        refused += int(refused_over_long_windows(part).sum())
    return LongWindowOutcome(
        condition, float(np.median(means)), max(excesses), share(refused, len(means)), _tail(np.array(means))
    )


def _windows(part: Measured) -> Iterator[tuple[int, list[LongWindows]]]:
    """Long windows of every run, by segment."""
    index = 0
    while LONG_MEANS.format(index) in part:
        pairs = zip(part[LONG_MEANS.format(index)], part[LONG_WEIGHTS.format(index)], strict=True)
        yield index, [LongWindows(float(mean), float(weight)) for mean, weight in pairs]
        index += 1


def _tail(means: Numbers) -> float | None:
    """The chance of a mean beyond the cut, were the logarithms of means normal."""
    logs = np.log(means)
    if len(logs) < FEWEST or not logs.std() > 0:
        return None
    away = (math.log(LONG_MEAN) - float(logs.mean())) / float(logs.std(ddof=1))
    return 0.5 * math.erfc(away / math.sqrt(2))
