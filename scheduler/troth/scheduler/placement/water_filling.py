"""Sharing a pipeline's layers by speed (Parallax, section 3.2), rounded by largest remainders under capacities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

ROUNDS = 60


@lru_cache(maxsize=4096)
def shares(capacities: tuple[int, ...], speeds: tuple[float, ...], layers: int) -> tuple[int, ...]:
    """Layers per stage, in order: sum `layers`, each at least 1 and at most its capacity.

    Expects 1 <= each capacity, `len(capacities)` <= `layers` <= their sum, and finite speeds above 0. The fractional
    share is `min(capacity, level * speed)`; the level is found by bisection as in the paper.
    """
    level = _level(capacities, speeds, layers)
    wanted = [_clamp(level * speed, capacity) for capacity, speed in zip(capacities, speeds, strict=True)]
    whole = [int(share) for share in wanted]
    remainders = sorted(range(len(whole)), key=lambda place: (whole[place] - wanted[place], place))
    return _settle(whole, remainders, capacities, layers)


def _clamp(share: float, capacity: int) -> float:
    return max(1.0, min(float(capacity), share))


def _level(capacities: Sequence[int], speeds: Sequence[float], layers: int) -> float:
    low, high = 0.0, max(capacity / speed for capacity, speed in zip(capacities, speeds, strict=True))
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        filled = sum(_clamp(middle * speed, capacity) for capacity, speed in zip(capacities, speeds, strict=True))
        low, high = (middle, high) if filled < layers else (low, middle)
    return high


def _settle(whole: list[int], order: Sequence[int], capacities: Sequence[int], layers: int) -> tuple[int, ...]:
    """Hand out what rounding down left over, largest remainder first; take back if rounding gave too much."""
    missing = layers - sum(whole)
    step = 1 if missing > 0 else -1
    turn = list(order) if missing > 0 else list(reversed(order))
    while missing:
        before = missing
        for place in turn:
            if missing and 1 <= whole[place] + step <= capacities[place]:
                whole[place] += step
                missing -= step
        if missing == before:
            break
    return tuple(whole)
