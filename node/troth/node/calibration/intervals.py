"""Exact confidence intervals of a share (Clopper and Pearson, 1934)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``total``, with the bounds of its 95 % interval."""

    count: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself, 0 for nothing of nothing."""
        return self.count / self.total if self.total else 0.0


def share(count: int, total: int) -> Share:
    """The share of `count` in `total` trials with its two-sided 95 % interval."""
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if count == 0 else _bisect(lambda p: 1 - at_most(count - 1, total, p) >= tail)
    high = 1.0 if count == total else _bisect(lambda p: at_most(count, total, p) <= tail)
    return Share(count, total, low, high)


def at_most(count: int, total: int, probability: float) -> float:
    """P(X <= count) of a binomial variable, summed in logarithms."""
    if probability <= 0:
        return 1.0
    if probability >= 1:
        return 1.0 if count >= total else 0.0
    logs = [
        math.lgamma(total + 1)
        - math.lgamma(k + 1)
        - math.lgamma(total - k + 1)
        + k * math.log(probability)
        + (total - k) * math.log1p(-probability)
        for k in range(count + 1)
    ]
    top = max(logs)
    return min(1.0, math.exp(top) * math.fsum(math.exp(one - top) for one in logs))


def _bisect(reached: Callable[[float], bool]) -> float:
    """Smallest probability at which a monotone condition holds."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
