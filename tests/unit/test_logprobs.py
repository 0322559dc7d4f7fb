"""Log probabilities: their values beside a float64 log-softmax, and each thing that cannot be."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from troth.protocol.errors import InvalidTokens
from troth.protocol.logprobs import (
    LEAST_LOGPROB,
    Logprobs,
    logprobs_from_bytes,
    logprobs_of,
    logprobs_to_bytes,
    require_possible,
)

HALF, QUARTER, TENTH = math.log(0.5), math.log(0.25), math.log(0.1)
GOOD = Logprobs(QUARTER, ((7, HALF), (3, QUARTER)))


def test_values_are_those_of_a_log_softmax_over_a_large_vocabulary() -> None:
    logits = np.random.default_rng(3).normal(scale=6, size=150_000).astype(np.float32)
    wide = logits.astype(np.float64)
    expected = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    found = logprobs_of(logits, 11, 20)
    assert found.chosen == pytest.approx(expected[11], abs=1e-5)
    ranked = np.argsort(-wide, kind="stable")[:20]
    assert [token for token, _ in found.top] == ranked.tolist()
    np.testing.assert_allclose([value for _, value in found.top], expected[ranked], atol=1e-5)
    assert logits.max() == wide.max(), "the caller's logits are left alone"


def test_equal_tokens_come_by_id_and_a_small_vocabulary_whole() -> None:
    found = logprobs_of(np.zeros(4, np.float32), 2, 3)
    assert [token for token, _ in found.top] == [0, 1, 2]
    assert [token for token, _ in logprobs_of(np.array([1, 3, 2], np.float32), 0, 20).top] == [1, 2, 0]
    assert logprobs_of(np.zeros(4, np.float32), 2, 0).top == ()
    extreme = logprobs_of(np.array([3e38, -3e38], np.float32), 1, 2)
    assert extreme == Logprobs(LEAST_LOGPROB, ((0, 0.0), (1, LEAST_LOGPROB)))


def test_the_packed_form_is_frozen() -> None:
    packed = struct.pack("<fIfIf", -1.5, 7, -0.5, 3, -1.5)
    assert logprobs_to_bytes(Logprobs(-1.5, ((7, -0.5), (3, -1.5)))) == packed
    assert logprobs_from_bytes(packed, 3, count=2, vocabulary=9) == Logprobs(-1.5, ((7, -0.5), (3, -1.5)))


IMPOSSIBLE: dict[str, tuple[Logprobs, int]] = {
    "above zero": (Logprobs(0.5, GOOD.top), 5),
    "not a number": (Logprobs(math.nan, GOOD.top), 5),
    "infinite": (Logprobs(-math.inf, GOOD.top), 5),
    "an alternative above zero": (Logprobs(TENTH, ((7, 0.5), (3, QUARTER))), 5),
    "an alternative that is no number": (Logprobs(TENTH, ((7, HALF), (3, math.nan))), 5),
    "too few": (Logprobs(TENTH, ((7, HALF),)), 5),
    "too many": (Logprobs(TENTH, (*GOOD.top, (4, TENTH))), 5),
    "outside the vocabulary": (Logprobs(TENTH, ((9, HALF), (3, QUARTER))), 5),
    "a token twice": (Logprobs(TENTH, ((7, HALF), (7, QUARTER))), 5),
    "unsorted": (Logprobs(TENTH, ((3, QUARTER), (7, HALF))), 5),
    "two values for the chosen one": (Logprobs(TENTH, GOOD.top), 3),
    "likelier than the likeliest": (Logprobs(math.log(0.3), GOOD.top), 5),
    "more than certain": (Logprobs(TENTH, ((7, HALF), (3, math.log(0.45)))), 5),
}


@pytest.mark.parametrize(("found", "token"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_model_can_have_found(found: Logprobs, token: int) -> None:
    require_possible(GOOD, 3, count=2, vocabulary=9)
    with pytest.raises(InvalidTokens):
        require_possible(found, token, count=2, vocabulary=9)
    with pytest.raises(InvalidTokens):
        logprobs_from_bytes(logprobs_to_bytes(found), token, count=2, vocabulary=9)
