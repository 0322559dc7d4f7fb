"""The classifiers of `scripts/bench committee` find what is there, and nothing where nothing is."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.classifiers import Features, boosted, logistic, told_apart, worded

Learner = Callable[[Features, Features], Callable[[Features], Features]]


def test_pairs_are_counted_and_draws_are_halves() -> None:
    assert told_apart(np.array([2.0, 3.0]), np.array([1.0])) == 100
    assert told_apart(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == pytest.approx(62.5)
    assert told_apart(np.zeros(3), np.ones(3)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("learn", "fewest"), [(logistic, 90), (boosted, 85)])
def test_a_dependence_of_two_features_is_found(learn: Learner, fewest: float) -> None:
    """Each feature alone is the same in both kinds."""
    chooser = np.random.default_rng(1)

    def rows(same: bool) -> Features:
        first, second = chooser.normal(size=(2, 600))
        return np.stack([first, np.abs(second) * np.sign(first) * (1 if same else -1)], axis=1)

    learned = learn(rows(True), rows(False))
    assert told_apart(learned(rows(True)), learned(rows(False))) > fewest
    learned = learn(rows(True), rows(True))
    assert 45 < told_apart(learned(rows(True)), learned(rows(True))) < 55


@pytest.mark.slow
def test_numbers_that_are_drawn_evenly_are_found_by_words() -> None:
    chooser = random.Random(1)

    def texts(numbers: range) -> list[str]:
        things = ("hats", "bags", "tea")
        return [f"please send {chooser.choice(things)} for ${chooser.choice(numbers)} now" for _ in range(120)]

    learned = worded(texts(range(100, 1000)), texts(range(100, 1000, 50)))
    assert told_apart(learned(texts(range(100, 1000))), learned(texts(range(100, 1000, 50)))) > 90
    learned = worded(texts(range(100, 1000)), texts(range(100, 1000)))
    assert 42 < told_apart(learned(texts(range(100, 1000))), learned(texts(range(100, 1000)))) < 58
