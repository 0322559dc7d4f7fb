"""The arithmetic that benchmarks print: committees against counting them, TOPLOC's polynomial against its points."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.committees import bound_of_lemma, captured, majority, smallest, taken_whole
from benchmarks.detection import toploc

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("nodes", "malicious", "committee"), [(7, 3, 3), (9, 4, 5), (6, 0, 3), (5, 5, 5)])
def test_chances_of_committees_are_those_of_counting_them(nodes: int, malicious: int, committee: int) -> None:
    draws = [sum(node < malicious for node in drawn) for drawn in combinations(range(nodes), committee)]
    assert captured(nodes, malicious, committee) == pytest.approx(np.mean([taken > committee / 2 for taken in draws]))
    assert taken_whole(nodes, malicious, committee) == pytest.approx(np.mean([taken == committee for taken in draws]))


def test_majorities_are_those_of_all_outcomes() -> None:
    honest, total = 0.7, 0.0
    for outcome in product((0, 1), repeat=5):
        chance = np.prod([honest if one else 1 - honest for one in outcome])
        total += float(chance) * (sum(outcome) >= 3)
    assert majority(5, honest) == pytest.approx(total)


@pytest.mark.parametrize("honest", [0.55, 0.7, 0.9])
def test_the_smallest_committee_is_right_often_enough_and_no_smaller_one_is(honest: float) -> None:
    size = smallest(honest, 0.01)
    assert majority(size, honest) >= 0.99 > majority(size - 2, honest)
    assert size <= bound_of_lemma(honest, 0.01)


def test_the_peer_accepts_equal_states_and_nothing_unlike_them() -> None:
    states = np.random.default_rng(1).normal(size=(70, 64))
    rows, others = _words(states), _words(np.random.default_rng(2).normal(size=(70, 64)))
    proofs = toploc.build(rows, 20)
    assert [proof.size for proof in proofs] == [258, 258, 258]
    assert toploc.accepts(proofs, rows, 20)
    assert toploc.accepts(proofs, _words(states * 1.004), 20), "it tolerates noise"
    assert not toploc.accepts(proofs, others, 20)
    assert not toploc.accepts(proofs, rows[:-40], 20), "another length"


def _words(states: np.ndarray) -> np.ndarray:
    return (states.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
