"""The chances of `scripts/bench capture`, against sums over every way to draw."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from benchmarks import capture
from benchmarks.capture.court import Court
from benchmarks.committees import captured, taken_whole

MALICIOUS, NODES = 3, 8


def test_equation_4_counts_the_committees() -> None:
    committees = [sum(node < MALICIOUS for node in drawn) for drawn in combinations(range(NODES), 3)]
    assert captured(NODES, MALICIOUS, 3) == pytest.approx(sum(taken >= 2 for taken in committees) / len(committees))
    assert taken_whole(NODES, MALICIOUS, 3) == pytest.approx(sum(taken == 3 for taken in committees) / len(committees))


def at_least(seats: int, least: int, share: float) -> float:
    return sum(comb(seats, taken) * share**taken * (1 - share) ** (seats - taken) for taken in range(least, seats + 1))


@pytest.mark.parametrize("malicious", capture.SHARES)
def test_the_courts_chances_are_binomial(malicious: int) -> None:
    court, honest = Court(malicious, 3, 15), 1 - malicious / 100
    assert court.found == pytest.approx(at_least(3, 2, honest))
    assert court.convicts == pytest.approx(at_least(15, 10, honest))
    assert court.convicts_honest == pytest.approx(at_least(15, 10, 1 - honest))
    assert court.caught(5) == pytest.approx(0.05 * court.found * court.convicts)


def test_the_penalty_is_the_least_that_deters() -> None:
    court = Court(20, 3, 15)
    caught = court.caught(5)
    assert 2 * court.penalty(5) * caught == pytest.approx(3 * (1 - caught))
    assert Court(0, 3, 15).penalty(100) == 2.0


def test_every_share_has_the_same_rows() -> None:
    names = [figure.name for figure in capture.measure()]
    assert len(set(names)) == len(names)
    for share in capture.SHARES:
        assert sum(name.startswith(f"{share} % ") for name in names) == len(names) / len(capture.SHARES)
