"""Evidence over tasks: fair against honest nodes whatever is asked, soon against those that cheat, and forgiving."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from troth.protocol.errors import InvalidField
from troth.protocol.sequential import ERROR, MOST, NOTHING, STAKES, NodeEvidence, entering, next_capital


def test_the_shares_that_enter_sum_up_to_the_first_capital() -> None:
    assert math.fsum(entering(task) for task in range(1, 100_000)) == pytest.approx(1, abs=1e-5)
    assert NOTHING.wealth == 1


@given(some.integers(1, 10_000), some.lists(some.floats(0, 50), min_size=4, max_size=4), some.floats(0.001, 0.9))
def test_a_bet_is_fair_at_the_honest_mean(tasks: int, capital: list[float], honest: float) -> None:
    """With a finding of 1 as often as an honest node may have it, wealth stays the same on average."""
    before = NodeEvidence(tasks, tuple(capital))
    expected = honest * before.after(1.0, honest).wealth + (1 - honest) * before.after(0.0, honest).wealth
    capped = max(before.after(1.0, honest).capital) >= MOST
    assert capped or expected == pytest.approx(before.wealth, rel=1e-9)


@given(some.lists(some.floats(0, 1), max_size=50), some.floats(0.01, 0.9))
def test_less_is_never_worse(findings: list[float], honest: float) -> None:
    low = high = NOTHING
    for finding in findings:
        low, high = low.after(finding / 2, honest), high.after(finding, honest)
    assert low.wealth <= high.wealth


def looks(rate: float, honest: float, *, nodes: int, tasks: int, seed: int) -> tuple[int, list[int]]:
    """How many of the nodes are ever found out, and after how many tasks."""
    draw = np.random.default_rng(seed)
    capital = np.zeros((len(STAKES), nodes))
    found = np.zeros(nodes, dtype=int)
    for task in range(1, tasks + 1):
        finding = (draw.random(nodes) < rate).astype(np.float64)
        for index, stake in enumerate(STAKES):
            capital[index] = next_capital(capital[index], finding, task=task, honest=honest, stake=stake)
        found[(found == 0) & (capital.mean(axis=0) + 1 / (2 * (task + 1)) >= 1 / ERROR)] = task
    return int((found > 0).sum()), sorted(int(task) for task in found if task)


@pytest.mark.slow
@pytest.mark.parametrize("honest", [0.001, 0.1, 0.6])
def test_a_thousand_honest_nodes_at_the_bound_are_never_found_out(honest: float) -> None:
    assert looks(honest, honest, nodes=1_000, tasks=5_000, seed=1) == (0, [])


@pytest.mark.parametrize(("honest", "rate", "most"), [(0.001, 0.5, 12), (0.1, 0.95, 12), (0.6, 0.8, 400)])
def test_cheats_are_found_out_soon(honest: float, rate: float, most: int) -> None:
    count, tasks = looks(rate, honest, nodes=200, tasks=2_000, seed=2)
    assert count == 200
    assert tasks[100] <= most


def test_who_begins_late_is_found_out_and_who_ends_is_acquitted() -> None:
    evidence = NOTHING
    for _ in range(3_000):
        evidence = evidence.after(0.0, 0.001)
    needed = 0
    while evidence.accepted:
        evidence, needed = evidence.after(1.0, 0.001), needed + 1
    assert needed <= 5
    for _ in range(2_000):
        evidence = evidence.after(0.0, 0.001)
    assert evidence.accepted


@pytest.mark.parametrize(("finding", "honest"), [(-0.1, 0.5), (1.1, 0.5), (0.5, 0.0), (0.5, 1.0), (math.nan, 0.5)])
def test_what_is_no_finding_is_refused(finding: float, honest: float) -> None:
    with pytest.raises(InvalidField):
        NOTHING.after(finding, honest)
