"""Surprise is minus the logarithm of a probability, and a client foresees no more of a text than 20 bits of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from troth.protocol.foresight import FORESEEN, Foresight, surprise
from troth.protocol.masks import RowRule
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.transforms import MILLION
from troth.protocol.types import Hash32

VOCABULARY = 40
SEED = Hash32(b"f" * 32)
rows = some.integers(0, 2**32 - 1).map(
    lambda seed: (3 * np.random.default_rng(seed).normal(size=VOCABULARY)).astype(np.float32)
)
samplings = some.builds(
    Sampling,
    some.sampled_from([0.3, 0.7, 1.0, 1.5]),
    some.sampled_from([0.3, 0.9, 1.0]),
    some.sampled_from([0, 1, 5]),
    some.sampled_from([0.0, 0.1]),
)
rules = some.none() | some.builds(
    lambda allowed, moved: RowRule(
        1_300_000, np.array([2, 7]), np.array([moved]), np.array([2 * MILLION]), np.array(sorted(allowed))
    ),
    some.sets(some.integers(0, VOCABULARY - 1), min_size=1),
    some.integers(0, VOCABULARY - 1),
)


@settings(deadline=None)
@given(rows, samplings, rules)
def test_what_is_left_has_probabilities_of_one_together(
    row: np.ndarray, sampling: Sampling, rule: RowRule | None
) -> None:
    told = [surprise(row, token, sampling, rule) for token in range(VOCABULARY)]
    left = [one for one in told if one > 1e-12]
    assert all(one >= -1e-9 for one in told)
    assert not left or sum(math.exp(-one) for one in left) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(1.0, 1.0), Sampling(0.7, 0.9), Sampling(1.0, 1.0, 4), Sampling(1, 0.8)])
def test_tokens_come_as_often_as_their_surprise_says(sampling: Sampling) -> None:
    row, counts, draws = np.linspace(-2, 2, 12).astype(np.float32), np.zeros(12), 4_000
    for position in range(draws):
        counts[choose(row, sampling, noise(SEED, position, 12))] += 1
    for token, count in enumerate(counts):
        told = surprise(row, token, sampling)
        expected = draws * math.exp(-told) if told else 0.0
        assert abs(count - expected) <= 6 * math.sqrt(max(expected, 1.0)), token


def test_what_nobody_draws_or_nothing_leaves_surprises_nobody() -> None:
    row = np.array([3.0, 1.0, 0.0, -9.0], np.float32)
    assert surprise(row, 1, Sampling(0.0, 1.0)) == 0
    assert surprise(row, 3, Sampling(1.0, 0.5)) == 0, "beyond the nucleus"
    assert surprise(row, 3, Sampling(1.0, 1.0, top_k=2)) == 0, "beyond the likeliest"
    forbidden = RowRule(MILLION, *(np.empty(0, np.int64) for _ in range(3)), allowed=np.array([0, 1]))
    assert surprise(row, 3, Sampling(1.0, 1.0), forbidden) == 0
    assert surprise(row, 1, Sampling(1.0, 1.0), forbidden) == pytest.approx(math.log(1 + math.exp(2)))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_and_biases_decide_how_surprising_a_token_is(temperature: float) -> None:
    row, sampling = np.zeros(4, np.float32), Sampling(temperature, 1.0)
    raised = RowRule(MILLION, np.empty(0, np.int64), np.array([1]), np.array([3 * MILLION]), None)
    odds = math.exp(3 / temperature)
    assert surprise(row, 1, sampling, raised) == pytest.approx(-math.log(odds / (odds + 3)))
    assert surprise(row + np.array([0, 3, 0, 0], np.float32), 0, sampling) == pytest.approx(math.log(odds + 3))


def test_tokens_count_once_those_before_them_were_surprising_enough() -> None:
    level, sure = np.zeros(16, np.float32), np.zeros(16, np.float32)
    sure[3] = 40
    foresight = Foresight(Sampling(1.0, 1.0))
    foresight.follow(np.stack([sure] * 50), [3] * 50)
    assert foresight.foreseen == 50, "a text that the prompt decides may be foreseen however long it is"
    foresight.follow(np.stack([level] * 3), [1, 2, 3])
    foresight.follow(np.stack([level] * 9), range(9))
    # 4 bits a token: the fifth one fills 20 bits, and what follows it counts.
    assert foresight.foreseen == 55
    assert pytest.approx(5 * math.log(16)) == FORESEEN
    greedy = Foresight(Sampling(0.0, 1.0))
    greedy.follow(np.stack([level] * 100), [0] * 100)
    assert greedy.foreseen == 100


def test_each_row_follows_its_own_rule() -> None:
    """A client that leaves two tokens of a row decides one bit of it, and not four."""
    level, two = np.zeros((30, 16), np.float32), RowRule(
        MILLION, *(np.empty(0, np.int64) for _ in range(3)), allowed=np.array([0, 1])
    )  # fmt: skip
    foresight = Foresight(Sampling(1.0, 1.0))
    foresight.follow(level, [1] * 30, [two] * 30)
    assert foresight.foreseen == 20
