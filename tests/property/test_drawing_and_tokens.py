"""The draw of parties and the choice of tokens over arbitrary groups, logits and seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from troth.protocol.assignment import draw
from troth.protocol.errors import WrongAssignment
from troth.protocol.permutation import permutation
from troth.protocol.sampling import tile_indices
from troth.protocol.scores import trace_score
from troth.protocol.tokens import MARGIN_CLIP, Sampling, choose, margin, noise
from troth.protocol.types import Hash32, address_from_bytes

words = some.binary(min_size=32, max_size=32).map(Hash32)
logits = arrays.arrays(np.float32, some.integers(1, 60), elements=some.floats(-50, 50, width=32))
samplings = some.builds(Sampling, some.sampled_from([0, 1e-6, 0.5, 1.0, 2.0]), some.sampled_from([1e-6, 0.5, 0.99, 1]))


@given(words, some.lists(some.booleans(), max_size=40), some.integers(1, 8))
def test_draw_takes_the_first_members_of_the_permutation(beta: Hash32, filled: list[bool], count: int) -> None:
    members = [address_from_bytes(bytes([slot]) * 20) if full else None for slot, full in enumerate(filled)]
    expected = tuple(found for slot in permutation(beta, len(members)) if (found := members[slot]) is not None)
    if len(expected) < count:
        with pytest.raises(WrongAssignment):
            draw(beta, members, count)
    else:
        assert draw(beta, members, count) == expected[:count]


@given(words, some.integers(0, 31), some.integers(1, 20), some.integers(0, 10_000))
def test_sampled_tiles_rise_and_stay_in_the_trace(seed: Hash32, segment: int, tiles: int, extra: int) -> None:
    indices = tile_indices(seed, segment, tiles, tiles + extra)
    assert len(indices) == tiles
    assert list(indices) == sorted(set(indices))
    assert indices[0] >= 0
    assert indices[-1] < tiles + extra


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


@given(arrays.arrays(np.float64, some.integers(1, 90), elements=some.floats(0, 0.05)), some.integers(0, 89))
def test_worse_rows_never_lower_a_score(distances: np.ndarray, index: int) -> None:
    before = trace_score(distances, 0.1)
    worse = distances.copy()
    worse[index % len(worse)] = 5.0
    after = trace_score(worse, 0.1)
    assert after.score >= before.score
    assert before.within(0.1)
    assert not after.within(0.1)
