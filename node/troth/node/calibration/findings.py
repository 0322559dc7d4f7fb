"""What the measurements of one class say: thresholds, and what they catch and refuse, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.node.calibration.conditions import CHEAT, HONEST, TEXT, Condition
from troth.node.calibration.generating import Plan
from troth.node.calibration.intervals import Share, share
from troth.node.calibration.measurements import Measurements
from troth.node.calibration.thresholds import (
    LENGTHS,
    Numbers,
    TileRule,
    between,
    choose_tile_rule,
    margin_cuts,
    rejected,
    state_cuts,
    tile_shares,
)
from troth.node.calibration.verifying import LAYOUTS, RULES, Measured
from troth.protocol.dtype import Dtype

TILES_TRIED = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What goes into the execution class; cuts in the units of `ExecutionClass` (millionths)."""

    state_cut: int
    margin_cut: int
    tile: TileRule


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one condition fares. ``states`` and ``margins`` are least cuts, one a run (its worst segment)."""

    condition: Condition
    states: Numbers
    margins: Numbers
    by_states: Share
    by_tokens: Share
    by_either: Share


@dataclass(frozen=True, slots=True)
class LayoutOutcome:
    """The contract's test under one layout and number of tiles: honest parties refused, int8 found, per segment."""

    layout: str
    tiles: int
    honest_refused: Share
    int8_found: Share


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a report shows; ``verdicts`` are honest ones refused, of all lengths and segments."""

    thresholds: Thresholds
    verdicts: Share
    outcomes: tuple[Outcome, ...]
    layouts: tuple[LayoutOutcome, ...]


def find(kept: Measurements, conditions: Sequence[Condition], plan: Plan) -> Findings:
    """Thresholds and outcomes from what was measured."""
    measured = {condition.name: kept.read(condition.name) for condition in conditions}
    runs = {name: np.array([max(cuts) for cuts in state_cuts(parts)]) for name, parts in measured.items()}
    applies = {one.name: _applying(one, measured[one.name]) for one in conditions}
    texts = {name: margin_cuts(parts)[applies[name]] for name, parts in measured.items()}
    honest = [one for one in conditions if one.kind == HONEST]
    verdict_cuts = _verdict_cuts([part for one in honest for part in measured[one.name]])
    text_cuts = _text_cuts([part for one in honest for part in measured[one.name]])
    thresholds = Thresholds(
        state_cut=_millionths(between(verdict_cuts, _of_kind(conditions, CHEAT, runs))),
        margin_cut=_millionths(between(text_cuts, _of_kind(conditions, TEXT, texts))),
        tile=_tile_rule(conditions, measured, plan),
    )
    state_cut, margin_cut = thresholds.state_cut / 1e6, thresholds.margin_cut / 1e6
    return Findings(
        thresholds,
        share(rejected(verdict_cuts, state_cut) + rejected(text_cuts, margin_cut), len(verdict_cuts) + len(text_cuts)),
        tuple(_outcome(one, runs[one.name][applies[one.name]], texts[one.name], thresholds) for one in conditions),
        tuple(_layouts(measured, honest, thresholds.tile, plan)),
    )


def _millionths(cut: float) -> int:
    return max(1, round(cut * 1e6))


def _of_kind(conditions: Sequence[Condition], kind: str, numbers: dict[str, Numbers]) -> Numbers:
    return np.concatenate([numbers[one.name] for one in conditions if one.kind == kind])


def _verdict_cuts(parts: list[Measured]) -> Numbers:
    """Least cuts of every segment of every honest run, at every length."""
    return np.array([cut for length in LENGTHS for cuts in state_cuts(parts, length) for cut in cuts])


def _text_cuts(parts: list[Measured]) -> Numbers:
    return np.concatenate([margin_cuts(parts, length=length) for length in LENGTHS])


def _applying(condition: Condition, parts: list[Measured]) -> NDArray[np.bool_]:
    """Per run, whether the condition changes anything: lies about sampling are none in a greedy text."""
    sampled = np.concatenate([part["sampled"] for part in parts]).astype(bool)
    return sampled if condition.text in {"greedy", "wrong seed", "cool"} else np.ones_like(sampled)


def _outcome(condition: Condition, states: Numbers, margins: Numbers, thresholds: Thresholds) -> Outcome:
    by_states, by_tokens = states > thresholds.state_cut / 1e6, margins > thresholds.margin_cut / 1e6
    shares = (share(int(found.sum()), len(states)) for found in (by_states, by_tokens, by_states | by_tokens))
    return Outcome(condition, states, margins, *shares)


def _tile_rule(conditions: Sequence[Condition], measured: dict[str, list[Measured]], plan: Plan) -> TileRule:
    dtype = Dtype(plan.dtype)

    def tiles(name: str, segment: int) -> Numbers:
        return tile_shares(measured[name], "permuted", segment, dtype).reshape(-1, len(RULES[dtype]))

    last = len(plan.segments) - 1
    honest = [tiles(one.name, segment) for one in conditions if one.kind == HONEST for segment in range(last + 1)]
    # Each of these changes the states of both segments.
    cheating = [
        tiles(one.name, segment)
        for one in conditions
        if one.kind == CHEAT and one.change is not None and "exit" not in one.name
        for segment in range(last + 1)
    ]
    return choose_tile_rule(dtype, np.concatenate(honest), np.concatenate(cheating))


def _layouts(
    measured: dict[str, list[Measured]], honest: Sequence[Condition], rule: TileRule, plan: Plan
) -> list[LayoutOutcome]:
    dtype = Dtype(plan.dtype)
    index = RULES[dtype].index((rule.bits, rule.steps))

    def below(name: str, layout: str, tiles: int) -> tuple[int, int]:
        failed = total = 0
        for segment in range(len(plan.segments)):
            values = tile_shares(measured[name], layout, segment, dtype)[:, :, index]
            groups = values[:, : values.shape[1] // tiles * tiles].reshape(len(values), -1, tiles).mean(axis=2)
            failed += int((groups < rule.theta / 10_000).sum())
            total += groups.size
        return failed, total

    found = []
    for layout in LAYOUTS:
        for tiles in TILES_TRIED:
            counts = [below(one.name, layout, tiles) for one in honest]
            refused = share(sum(failed for failed, _ in counts), sum(total for _, total in counts))
            found.append(LayoutOutcome(layout, tiles, refused, share(*below("int8 weights", layout, tiles))))
    return found
