"""Requests as ShareGPT's conversations have them: lognormal lengths, Poisson arrivals, the same for every scheduler."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

PROMPT_MEAN, OUTPUT_MEAN = 161.31, 337.99
"""Tokens of ShareGPT's requests (Kwon et al., Efficient Memory Management for LLM Serving, SOSP 2023, figure 11)."""
SPREAD = 1.0
"""Standard deviation of the lengths' logarithm. The paper draws the distributions and gives only their means."""
LONGEST = 2048


@dataclass(frozen=True, slots=True)
class Request:
    """`prompt` and `output` in tokens, `arrival` in seconds."""

    number: int
    arrival: float
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        """What its cache holds in the end."""
        return self.prompt + self.output


def sharegpt(count: int, rate: float, seed: int) -> list[Request]:
    """`count` requests, `rate` a second on average. Lengths depend on the seed alone, not on the rate."""
    lengths = random.Random(f"lengths {seed}")  # noqa: S311 - a reproducible trace, no secret
    gaps = random.Random(f"gaps {seed}")  # noqa: S311 - a reproducible trace, no secret
    requests, now = [], 0.0
    for number in range(count):
        now += gaps.expovariate(1.0) / rate
        requests.append(Request(number, now, _length(lengths, PROMPT_MEAN), _length(lengths, OUTPUT_MEAN)))
    return requests


def _length(draw: random.Random, mean: float) -> int:
    """Lognormal with this mean, cut off at both ends."""
    return min(LONGEST, max(1, round(draw.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD))))
