"""Whoever is one of a verifier's own runs is never refused by the seventh rules, whatever a prompt does to rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.scores import UNSTEADY, rho_and_rows
from troth.protocol.unsteady import ShakenRuns, ShakenWindows, distances


def shaken_runs(runs: list[np.ndarray], high: np.ndarray) -> ShakenRuns:
    apart = [distances(run, high) for run in runs]
    return ShakenRuns(apart, apart[:2])


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 90),
    shaken=st.integers(2, 8),
    tipping=st.floats(0, 1),
    jump=st.floats(1, 50),
    claimed=st.integers(0, 9),
)
def test_one_of_the_runs_is_accepted(
    *, seed: int, count: int, shaken: int, tipping: float, jump: float, claimed: int
) -> None:
    draw = np.random.default_rng(seed)
    high = draw.normal(size=(count, 16)).astype(np.float32)
    jumps = np.where(draw.random((2 + shaken, 1, 1)) < tipping, jump, 1.0)
    runs = (high + 0.02 * jumps * draw.normal(size=(2 + shaken, count, 16))).astype(np.float32)
    one, own, others = runs[claimed % len(runs)], list(runs[:2]), list(runs[2:])
    runs_at_third = shaken_runs(others, high)
    beside = ShakenWindows(one, own, runs_at_third, high)
    assert beside.worst().excess == 0
    assert beside.mean() <= 1
    ratios, rows = rho_and_rows(one, own, high, runs_at_third.noise)
    assert max(ratios.max(), rows.max()) <= UNSTEADY + 1e-9


@given(seed=st.integers(0, 2**32 - 1), more=st.integers(0, 6))
def test_shaken_runs_excuse_and_never_accuse(*, seed: int, more: int) -> None:
    draw = np.random.default_rng(seed)
    high = draw.normal(size=(70, 16)).astype(np.float32)

    def run(size: float) -> np.ndarray:
        return (high + size * draw.normal(size=high.shape)).astype(np.float32)

    claimed, own, shaken = run(0.05), [run(0.02)], [run(float(draw.uniform(0.01, 0.1))) for _ in range(2 + more)]
    alone = rho_and_rows(claimed, own, high)
    noise = shaken_runs(shaken, high).noise
    for before, after in zip(alone, rho_and_rows(claimed, own, high, noise), strict=True):
        assert (after <= before + 1e-9).all()
