"""P(k of n): how often enough paths arrive (PlanetServe Appendix A4)."""

from __future__ import annotations

from math import comb

import numpy as np

from research.anonymity.lines import Line, Numbers

FAILURES = np.linspace(0, 0.10, 21)
RELAYS = 3
THRESHOLDS = ((1, 1), (4, 3), (6, 4), (8, 4))


def at_least(k: int, n: int, chance: Numbers) -> Numbers:
    """P(X ≥ k) for X of n independent paths, each with this chance: A4's sum."""
    return np.asarray(sum(comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(k, n + 1)))


def arrives(k: int, n: int, failure: Numbers, relays: int = RELAYS) -> Numbers:
    """A4: a path holds if all its relays do."""
    return at_least(k, n, (1 - failure) ** relays)


def simulated(k: int, n: int, failure: float, generator: np.random.Generator, trials: int = 100_000) -> float:
    """The same by drawing every relay."""
    holds = (generator.random((trials, n, RELAYS)) >= failure).all(axis=2).sum(axis=1)
    return float((holds >= k).mean())


def lines() -> list[Line]:
    """P(k of n) over the share of relays that fail during a round."""
    return [Line(_name(n, k), FAILURES, arrives(k, n, FAILURES)) for n, k in THRESHOLDS]


def _name(n: int, k: int) -> str:
    return "one onion path" if n == 1 else f"({n}, {k})"
