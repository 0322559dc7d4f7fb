"""What the measurements of one class say: thresholds, and what they catch and refuse, with confidence intervals.

Thresholds come from all prompts. What they refuse and catch is counted on prompts that they were not made from: once
with the cuts that the even prompts give on the odd ones, once the other way round.

A bootstrap over the measured texts says how soon margins that are pooled over tasks tell a cheat from honest noise. It
draws the verifier's own noise from the honest runs, independently of the claimed text. In service both stem from the
same prompts, which makes honest ratios narrower than they are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from troth.node.calibration.conditions import CHEAT, HONEST, TEXT, Condition
from troth.node.calibration.generating import CalibrationPlan
from troth.node.calibration.intervals import Share, share
from troth.node.calibration.layouts import HARDEST, LayoutOutcome, compare_layouts, enough_tiles
from troth.node.calibration.long_windows import LongWindowFindings, look_at_long_windows, refused_over_long_windows
from troth.node.calibration.measurements import MeasurementFiles
from troth.node.calibration.thresholds import (
    LENGTHS,
    Numbers,
    between,
    choose_tile_rule,
    margin_cut,
    margin_cuts,
    margins_of,
    near,
    rules_for,
    state_cuts,
    tile_shares,
)
from troth.node.calibration.verifying import RULES, Measured
from troth.node.models.thresholds import Thresholds, TileRule
from troth.protocol.pooling import FLOOR, RATIO_CUT
from troth.protocol.tensors import Dtype

SIZES = (1_024, 4_096, 8_192, 16_384)
"""Tokens of a pool."""
DRAWS = 4_000
HIGH = "margins-high"
ABOUT_SAMPLING = frozenset({"greedy", "wrong seed", "cool"})
"""Lies that change nothing in a text that was asked for greedily, or whose likeliest tokens leave no choice."""
Parts = Mapping[str, list[Measured]]


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """Ratios of one condition's pools: the quantile 0.001, the median, 0.999, and the share that is refused."""

    condition: str
    tokens: int
    low: float
    median: float
    high: float
    refused: float


def pool_outcomes(measured: Mapping[str, list[Measured]], honest: Sequence[str]) -> Iterator[PoolOutcome]:
    """Every condition with every size; nothing in a class without a float32 reference."""
    sums = {
        name: np.concatenate([part[HIGH] for part in parts if HIGH in part] or [np.empty((0, 1))])
        for name, parts in measured.items()
    }
    own = np.concatenate([sums[name].sum(axis=1) for name in honest])
    if not len(own):
        return
    draw = np.random.default_rng(20260103)
    for name, margins in sums.items():
        lost, width = margins.sum(axis=1), margins.shape[1]
        for tokens in SIZES:
            texts = max(1, tokens // width)
            floor = FLOOR * texts * width
            claimed = lost[draw.integers(len(lost), size=(DRAWS, texts))].sum(axis=1)
            noise = own[draw.integers(len(own), size=(DRAWS, texts))].sum(axis=1)
            ratios = (claimed + floor) / (noise + floor)
            low, median, high = (float(np.quantile(ratios, q)) for q in (0.001, 0.5, 0.999))
            yield PoolOutcome(name, tokens, low, median, high, float((ratios > RATIO_CUT).mean()))


@dataclass(frozen=True, slots=True)
class ConditionOutcome:
    """How one condition fares. ``states`` and ``margins`` are least cuts, one a run (its worst segment); the shares
    are of runs that the thresholds were not made from. ``by_states`` are by the state cut alone, ``by_any`` by long
    windows, too, where the class looks at them."""

    condition: Condition
    states: Numbers
    margins: Numbers
    by_states: Share
    by_tokens: Share
    by_any: Share


@dataclass(frozen=True, slots=True)
class CalibrationFindings:
    """Everything that a report shows. ``refused`` are honest tasks of all lengths that a verifier refuses, on prompts
    that the thresholds were not made from; ``refused_known`` on those that they were made from."""

    thresholds: Thresholds
    refused: Share
    refused_known: Share
    outcomes: tuple[ConditionOutcome, ...]
    layouts: tuple[LayoutOutcome, ...]
    pools: tuple[PoolOutcome, ...]
    rules: int
    long_windows: LongWindowFindings | None
    """None in float32."""


@dataclass(frozen=True, slots=True)
class _CalibratedCuts:
    """What a class made from some prompts judges by; ``long``: whether it looks at long windows."""

    thresholds: Thresholds
    long: bool


@dataclass(frozen=True, slots=True)
class _Counts:
    """Runs of one condition that were judged, and how many of them each check found."""

    total: int
    states: int
    tokens: int
    any: int

    def __add__(self, other: _Counts) -> _Counts:
        return _Counts(
            self.total + other.total,
            self.states + other.states,
            self.tokens + other.tokens,
            self.any + other.any,
        )


def find(kept: MeasurementFiles, conditions: Sequence[Condition], plan: CalibrationPlan) -> CalibrationFindings:
    """Thresholds and outcomes from what was measured."""
    measured = {condition.name: kept.read(condition.name) for condition in conditions}
    honest = [one for one in conditions if one.kind == HONEST]
    names = [one.name for one in honest]
    thresholds = thresholds_of(conditions, measured, plan)
    thresholds = replace(thresholds, tiles=enough_tiles(measured, names, thresholds.tile, plan))
    halves = [{name: _every_second(parts, first) for name, parts in measured.items()} for first in (0, 1)]
    windows = look_at_long_windows(conditions, measured) if plan.dtype else None
    folds = [(_cuts(conditions, mine, plan), others) for mine, others in (halves, halves[::-1])]
    whole = _CalibratedCuts(thresholds, windows is not None and windows.supported)
    return CalibrationFindings(
        thresholds,
        refused=_share_of(sum((_refused(honest, parts, cuts) for cuts, parts in folds), _NONE)),
        refused_known=_share_of(_refused(honest, measured, whole)),
        outcomes=tuple(
            _outcome(one, measured[one.name], [(cuts, parts[one.name]) for cuts, parts in folds]) for one in conditions
        ),
        layouts=tuple(compare_layouts(measured, names, thresholds.tile, plan)),
        pools=tuple(pool_outcomes(measured, names)),
        rules=rules_for(
            Dtype(plan.dtype),
            [part for name in names for part in measured[name]],
            thresholds.state_cut / 1e6,
            long_windows=whole.long,
        ),
        long_windows=windows,
    )


def _cuts(conditions: Sequence[Condition], measured: Parts, plan: CalibrationPlan) -> _CalibratedCuts:
    long = bool(plan.dtype) and look_at_long_windows(conditions, measured).supported
    return _CalibratedCuts(thresholds_of(conditions, measured, plan), long)


_NONE = _Counts(0, 0, 0, 0)


def thresholds_of(conditions: Sequence[Condition], measured: Parts, plan: CalibrationPlan) -> Thresholds:
    """Cuts between honest runs and those cheats that the check at hand can tell."""
    honest = [part for one in conditions if one.kind == HONEST for part in measured[one.name]]
    states = np.array([cut for length in LENGTHS for cuts in state_cuts(honest, length) for cut in cuts])
    texts = np.concatenate([margin_cuts(honest, length=length) for length in LENGTHS])
    cheats = [max(cuts) for one in conditions if one.kind == CHEAT for cuts in state_cuts(measured[one.name])]
    lies = [_text_cuts(one, measured[one.name]) for one in conditions if one.kind == TEXT]
    cut = near if Dtype(plan.dtype) is Dtype.FLOAT32 else between
    return Thresholds(
        state_cut=_millionths(cut(states, np.array(cheats))),
        margin_cut=_millionths(margin_cut(Dtype(plan.dtype), texts, np.concatenate(lies))),
        tile=_tile_rule(conditions, measured, plan),
    )


def _every_second(parts: list[Measured], first: int) -> list[Measured]:
    return [{name: values[first::2] for name, values in part.items()} for part in parts]


def _millionths(cut: float) -> int:
    return max(1, round(cut * 1e6))


def _applying(condition: Condition, parts: list[Measured]) -> NDArray[np.bool_]:
    """Per run, whether the condition changes anything: a text that loses nothing anywhere is the honest one."""
    sampled = np.concatenate([part["sampled"] for part in parts]).astype(bool)
    changed = np.concatenate([margins_of(part).any(axis=1) for part in parts])
    return sampled & changed if condition.text in ABOUT_SAMPLING else np.ones_like(sampled)


def _text_cuts(condition: Condition, parts: list[Measured], length: int | None = None) -> Numbers:
    return margin_cuts(parts, length=length)[_applying(condition, parts)]


def _run_cuts(condition: Condition, parts: list[Measured], length: int | None = None) -> Numbers:
    worst = np.array([max(cuts) for cuts in state_cuts(parts, length)])
    return worst[_applying(condition, parts)]


def _judge(condition: Condition, parts: list[Measured], cuts: _CalibratedCuts, length: int | None = None) -> _Counts:
    """Verdicts over whole tasks: the worst segment's states, and the text. Long windows are those of whole texts, which
    count by the most."""
    by_states = _run_cuts(condition, parts, length) > cuts.thresholds.state_cut / 1e6
    by_tokens = _text_cuts(condition, parts, length) > cuts.thresholds.margin_cut / 1e6
    refused = by_states | by_tokens
    if cuts.long and length is None:
        over_long = np.concatenate([refused_over_long_windows(part) for part in parts])
        refused = refused | over_long[_applying(condition, parts)]
    return _Counts(len(by_states), int(by_states.sum()), int(by_tokens.sum()), int(refused.sum()))


def _refused(honest: Sequence[Condition], measured: Parts, cuts: _CalibratedCuts) -> _Counts:
    judged = (_judge(one, measured[one.name], cuts, length) for one in honest for length in LENGTHS)
    return sum(judged, _NONE)


def _share_of(counts: _Counts) -> Share:
    return share(counts.any, counts.total)


def _outcome(
    condition: Condition, parts: list[Measured], folds: Sequence[tuple[_CalibratedCuts, list[Measured]]]
) -> ConditionOutcome:
    counts = sum((_judge(condition, half, cuts) for cuts, half in folds), _NONE)
    shares = (share(found, counts.total) for found in (counts.states, counts.tokens, counts.any))
    return ConditionOutcome(condition, _run_cuts(condition, parts), _text_cuts(condition, parts), *shares)


def _tile_rule(conditions: Sequence[Condition], measured: Parts, plan: CalibrationPlan) -> TileRule:
    dtype = Dtype(plan.dtype)

    def tiles(one: Condition) -> list[Numbers]:
        return [
            tile_shares(measured[one.name], "permuted", segment, dtype).reshape(-1, len(RULES[dtype]))
            for segment in range(len(plan.segments))
        ]

    honest = [values for one in conditions if one.kind == HONEST for values in tiles(one)]
    cheating = [values for one in conditions if _told_by_tiles(one, dtype) for values in tiles(one)]
    return choose_tile_rule(dtype, np.concatenate(honest), np.concatenate(cheating))


def _told_by_tiles(condition: Condition, dtype: Dtype) -> bool:
    """Whether tiles must tell it. In float32 that is whatever changes the states of both segments."""
    if dtype is Dtype.BFLOAT16:
        return condition.name == HARDEST[dtype]
    return condition.kind == CHEAT and condition.change is not None and "exit" not in condition.name
