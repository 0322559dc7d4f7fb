"""The draw of tiles and the choice of tokens over arbitrary traces, logits and seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from troth.protocol.margins import loss, losses, margin
from troth.protocol.scores import trace_score
from troth.protocol.tokens import MARGIN_CLIP, Sampling, choices, choose, noise
from troth.protocol.trace import tile_indices
from troth.protocol.types import Hash32

words = some.binary(min_size=32, max_size=32).map(Hash32)
logits = arrays.arrays(np.float32, some.integers(1, 60), elements=some.floats(-50, 50, width=32))
counts = some.sampled_from([0, 0, 1, 2, 3, 5, 100])
ratios = some.sampled_from([0.0, 0.0, 1e-6, 0.05, 0.37, 0.9, 1.0])
samplings = some.builds(
    Sampling, some.sampled_from([0, 1e-6, 0.5, 1.0, 2.0]), some.sampled_from([1e-6, 0.5, 0.99, 1]), counts, ratios
)


@given(words, some.integers(0, 31), some.integers(1, 20), some.integers(0, 10_000))
def test_sampled_tiles_rise_and_stay_in_the_trace(seed: Hash32, segment: int, tiles: int, extra: int) -> None:
    indices = tile_indices(seed, segment, tiles, tiles + extra)
    assert len(indices) == tiles
    assert list(indices) == sorted(set(indices))
    assert indices[0] >= 0
    assert indices[-1] < tiles + extra


@pytest.mark.slow
@given(logits, samplings, words, some.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_chosen_token_has_no_margin_and_margins_are_bounded(
    row: np.ndarray, sampling: Sampling, seed: Hash32, position: int
) -> None:
    gumbel = noise(seed, position, len(row))
    token = choose(row, sampling, gumbel)
    assert margin(row, token, sampling, gumbel) == 0
    for other in range(len(row)):
        assert 0 <= margin(row, other, sampling, gumbel) <= MARGIN_CLIP


close = arrays.arrays(np.float64, some.integers(2, 12), elements=some.sampled_from([5.0, 4.99, 4.9, 4.0, 3.0, -3.0]))
ends = some.one_of(some.floats(1e-6, 1), some.sampled_from([1e-6, 0.02, 0.25, 1 / 3, 0.5, 0.98, 1]))
tempered = some.builds(Sampling, some.sampled_from([0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0]), ends, counts, ratios)


@pytest.mark.slow
@given(close, tempered, words, some.sampled_from([1e-5, 1e-3, 0.05, 0.12]), some.integers(0, 2**32 - 1))
@settings(max_examples=400)
def test_rounding_costs_no_more_than_itself_at_any_temperature_and_end_of_what_is_left(
    row: np.ndarray, sampling: Sampling, seed: Hash32, rounding: float, number: int
) -> None:
    drawn, gumbel = np.random.default_rng(number), noise(seed, number, len(row))
    one, other = (row + drawn.uniform(-rounding, rounding, len(row)) for _ in range(2))
    # Each is off by `rounding` at most, so the differences of two logits are off by four times that.
    assert margin(one, choose(other, sampling, gumbel), sampling, gumbel) <= 4 * rounding + 1e-6


@pytest.mark.slow
@given(logits, samplings, words, some.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_a_token_is_one_of_those_that_each_cut_leaves(
    row: np.ndarray, sampling: Sampling, seed: Hash32, position: int
) -> None:
    """By the definition: sorted, and counted one by one."""
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    if sampling.temperature > 0:
        if sampling.min_p:
            least = float(row.max()) + sampling.temperature * math.log(sampling.min_p)
            order = [token for token in order if float(row[token]) >= least]
        order = order[: sampling.top_k or None]
        shares = np.exp((row[order].astype(float) - float(row.max())) / sampling.temperature)
        before = np.cumsum(shares) - shares
        order = [token for token, reached in zip(order, before / shares.sum(), strict=True)
                 if reached < sampling.top_p + 1e-9]  # fmt: skip
        likely = choose(row, sampling, noise(seed, position, len(row)))
        assert likely in order
        # Without noise it is the likeliest, whatever is cut.
        assert row[choose(row, sampling, np.zeros(len(row)))] == row.max()
    else:
        assert choose(row, sampling, None) == order[0]


@given(arrays.arrays(np.float64, some.integers(1, 90), elements=some.floats(0, 0.05)), some.integers(0, 89))
def test_worse_rows_never_lower_a_score(distances: np.ndarray, index: int) -> None:
    before = trace_score(distances, 0.1)
    worse = distances.copy()
    worse[index % len(worse)] = 5.0
    after = trace_score(worse, 0.1)
    assert after.score >= before.score
    assert before.within(0.1)
    assert not after.within(0.1)


@pytest.mark.slow
@given(close, tempered, words, some.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_a_quick_look_says_what_the_whole_rule_says(
    row: np.ndarray, sampling: Sampling, seed: Hash32, position: int
) -> None:
    """Whichever token is guessed, and ties and ends of the nucleus among them."""
    gumbel = noise(seed, position, len(row)) if sampling.temperature > 0 else None
    chosen, rows = choose(row, sampling, gumbel), row[None]
    for token in range(len(row)):
        place = {"seed": seed, "first_position": position}
        assert choices(rows, sampling, guesses=[token], **place) == [chosen]
        found = losses(rows, [token], sampling, **place)
        assert (found.whole[0], found.least[0]) == loss(row, token, sampling, gumbel)
