"""Throughput and latencies of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from research.pool.simulation import Outcome

COUNTED = 0.9
"""Throughput is taken when this part of the requests has ended: the last to end is one long answer, not the pool."""


@dataclass(frozen=True, slots=True)
class Result:
    """Requests a second; seconds from arrival to the last token (mean, median, 99 %) and, on average, to the first."""

    throughput: float
    latency: float
    median: float
    tail: float
    first_token: float
    ended: int
    dropped: int
    moved: int


def result_of(outcome: Outcome) -> Result:
    """Latencies of those that ended; throughput counts dropped requests as never ended."""
    latencies = [ended.last_token - ended.request.arrival for ended in outcome.ended]
    first = [ended.first_token - ended.request.arrival for ended in outcome.ended]
    counted = math.ceil(COUNTED * (len(latencies) + len(outcome.dropped)))
    times = sorted(ended.last_token for ended in outcome.ended)
    if not times:
        return Result(0.0, math.inf, math.inf, math.inf, math.inf, 0, len(outcome.dropped), outcome.moved)
    counted = min(counted, len(times))
    return Result(
        counted / times[counted - 1],
        fmean(latencies),
        part(latencies, 0.5),
        part(latencies, 0.99),
        fmean(first),
        len(latencies),
        len(outcome.dropped),
        outcome.moved,
    )


def part(values: Sequence[float], share: float) -> float:
    """The least value that this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
