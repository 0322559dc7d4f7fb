"""Z(k) (Parallax, section 3.2), and how large it and k can be at most."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from troth.routing.placement.pool import MachinePool

SANE_SECONDS = 1e6
SANE_EXPONENT = 16.0


def sane_seconds(seconds: float) -> float:
    """A measured time as the searches use it: what is no time, or takes longer than days, counts as slowest."""
    return max(seconds, 1e-9) if math.isfinite(seconds) and 0 <= seconds <= SANE_SECONDS else SANE_SECONDS


@dataclass(frozen=True, slots=True)
class Objective:
    """Z(k) = k^alpha / (T_comp + (s / k) r_hop), all times in seconds."""

    exponent: float
    compute_seconds: float
    hop_seconds: float

    def score(self, pipelines: int, stages: int) -> float:
        """Z of `pipelines` that have `stages` together; 0 for none."""
        if pipelines < 1:
            return 0.0
        return float(pipelines**self.exponent) / (self.compute_seconds + stages / pipelines * self.hop_seconds)


def objective(exponent: float, compute_seconds: float, hop_seconds: float) -> Objective:
    """Any numbers made fit for arithmetic: an exponent that is none is 1, and times are at least a nanosecond."""
    usable = min(max(exponent, 0.0), SANE_EXPONENT) if not math.isnan(exponent) else 1.0
    return Objective(usable, sane_seconds(compute_seconds), sane_seconds(hop_seconds))


def most_pipelines(pool: MachinePool) -> int:
    """No placement of the pool has more: what they take grows with their number. Sum c / L is looser."""
    if not pool.kinds:
        return 0
    return min(bisect_right(pool.demands, pool.total) - 1, sum(pool.counts) // fewest_stages(pool))


def fewest_stages(pool: MachinePool) -> int:
    """No pipeline of the pool has fewer stages: even its largest machines need so many, and one is never enough."""
    return max(2, -(-pool.least // pool.kinds[0].inner))


def stage_bounds(pool: MachinePool, pipelines: int) -> list[int]:
    """For k = 0 ... `pipelines`: no k pipelines of the pool have fewer stages together, as the largest machines say."""
    each = fewest_stages(pool) if pool.kinds else 1
    sizes = [kind.inner for kind, count in zip(pool.kinds, pool.counts, strict=True) for _ in range(count)]
    sums = list(accumulate(sizes, initial=0))
    bounds, stages = [0], 0
    for count in range(1, pipelines + 1):
        while stages < len(sizes) and sums[stages] < pool.demands[count]:
            stages += 1
        bounds.append(max(stages, count * each))
    return bounds
