"""How evenly the layers are hosted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from troth.scheduler.placement.objective import sane_seconds
from troth.scheduler.placement.plan import Slice


def layer_loads(slices: Iterable[Slice], seconds: Mapping[str, float], layers: int) -> list[float]:
    """Seconds that a token costs in each layer if its hosts share the work, each busy with all of its layers alike.

    A host of n layers at s seconds each gives one layer 1 / (n s) tokens a second; infinite where nobody hosts.
    """
    rates = [0.0] * layers
    for held in slices:
        rate = 1.0 / (sane_seconds(seconds.get(held.name, math.inf)) * (held.end - held.first))
        for layer in range(held.first, held.end):
            rates[layer] += rate
    return [1.0 / rate if rate else math.inf for rate in rates]


def variation(loads: Iterable[float]) -> float:
    """Coefficient of variation: standard deviation over mean; infinite if some layer has no host, 0 for no layers."""
    values = list(loads)
    if not values:
        return 0.0
    if any(math.isinf(value) for value in values):
        return math.inf
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean
