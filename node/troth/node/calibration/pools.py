"""How soon margins pooled over tasks tell a cheat from honest noise, by bootstrap over the measured texts.

The verifier's own noise is drawn from the honest runs, independently of the claimed text. In service both stem from the
same prompts, which makes honest ratios narrower than they are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from troth.node.calibration.verifying import Measured
from troth.protocol.pooling import FLOOR, RATIO_CUT

SIZES = (1_024, 4_096, 8_192, 16_384)
"""Tokens of a pool."""
DRAWS = 4_000
HIGH = "margins-high"


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
