"""Which layout of a trace the contract's own test should see: one opened tile of permuted, contiguous or scattered
elements. The scattered one cannot be opened cheaply; it is what random elements would tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from troth.node.calibration.generating import CalibrationPlan
from troth.node.calibration.intervals import Share, share
from troth.node.calibration.thresholds import tile_shares
from troth.node.calibration.verifying import LAYOUTS, RULES, Measured
from troth.node.models.thresholds import TileRule
from troth.protocol.tensors import Dtype

TILES_TRIED = (1, 2, 4, 8)
CHOSEN = "permuted"
"""The layout that traces have."""
HARDEST = {Dtype.FLOAT32: "float16 weights", Dtype.BFLOAT16: "W8A8"}
"""The cheat nearest to honest runs that a class's tiles must tell. In bfloat16 an honest node with another engine may
be as far away as one with int8 or fp8 weights: verifiers tell these apart by whole traces, and tiles do not."""


@dataclass(frozen=True, slots=True)
class LayoutOutcome:
    """The contract's test under one layout and number of tiles: honest parties refused, the hardest cheat found, per
    segment."""

    layout: str
    tiles: int
    honest_refused: Share
    cheat: str
    cheat_found: Share


def compare_layouts(
    measured: Mapping[str, list[Measured]], honest: Sequence[str], rule: TileRule, plan: CalibrationPlan
) -> Iterator[LayoutOutcome]:
    """Every layout with every number of tiles, under one rule; `honest` names the honest conditions."""
    cheat = HARDEST[Dtype(plan.dtype)]
    for layout in LAYOUTS:
        for tiles in TILES_TRIED:
            refused = [_below(measured[name], layout, tiles, rule, plan) for name in honest]
            yield LayoutOutcome(
                layout,
                tiles,
                share(sum(failed for failed, _ in refused), sum(total for _, total in refused)),
                cheat,
                share(*_below(measured[cheat], layout, tiles, rule, plan)),
            )


def enough_tiles(
    measured: Mapping[str, list[Measured]], honest: Sequence[str], rule: TileRule, plan: CalibrationPlan
) -> int:
    """The fewest tiles at which no honest opening is refused and every opening of the hardest cheat is found; the most
    that were tried if there is no such number."""
    for tiles in TILES_TRIED:
        refused = sum(_below(measured[name], CHOSEN, tiles, rule, plan)[0] for name in honest)
        found, total = _below(measured[HARDEST[Dtype(plan.dtype)]], CHOSEN, tiles, rule, plan)
        if not refused and found == total:
            return tiles
    return TILES_TRIED[-1]


def _below(parts: list[Measured], layout: str, tiles: int, rule: TileRule, plan: CalibrationPlan) -> tuple[int, int]:
    """How many openings of so many tiles agree less than theta, of how many."""
    dtype = Dtype(plan.dtype)
    index = RULES[dtype].index((rule.bits, rule.steps))
    failed = total = 0
    for segment in range(len(plan.segments)):
        values = tile_shares(parts, layout, segment, dtype)[:, :, index]
        groups = values[:, : values.shape[1] // tiles * tiles].reshape(len(values), -1, tiles).mean(axis=2)
        failed += int((groups < rule.theta / 10_000).sum())
        total += groups.size
    return failed, total
