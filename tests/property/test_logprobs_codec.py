"""Packed log probabilities: what a model can find survives, and nothing else is ever read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from troth.protocol.errors import InvalidTokens
from troth.protocol.logprobs import (
    ALTERNATIVES_LIMIT,
    PACKED_LIMIT,
    logprobs_from_bytes,
    logprobs_of,
    logprobs_to_bytes,
    require_possible,
)

rows = some.integers(1, 40).flatmap(
    lambda size: arrays(np.float32, size, elements=some.floats(allow_nan=False, allow_infinity=False, width=32))
)
counts = some.integers(0, ALTERNATIVES_LIMIT)


@pytest.mark.slow
@given(rows, some.data(), counts)
def test_what_any_finite_logits_give_survives(logits: np.ndarray, data: some.DataObject, count: int) -> None:
    token = data.draw(some.integers(0, len(logits) - 1))
    found = logprobs_of(logits, token, count)
    packed = logprobs_to_bytes(found)
    assert len(packed) <= PACKED_LIMIT
    assert logprobs_from_bytes(packed, token, count=count, vocabulary=len(logits)) == found


@given(some.binary(max_size=PACKED_LIMIT + 9), some.integers(0, 50), counts, some.integers(1, 50))
def test_any_bytes_are_possible_or_refused(data: bytes, token: int, count: int, vocabulary: int) -> None:
    try:
        found = logprobs_from_bytes(data, token, count=count, vocabulary=vocabulary)
    except InvalidTokens:
        return
    require_possible(found, token, count=count, vocabulary=vocabulary)
    assert logprobs_to_bytes(found) == data


@pytest.mark.slow
@given(rows, some.data(), counts)
def test_a_changed_byte_is_possible_or_refused(logits: np.ndarray, data: some.DataObject, count: int) -> None:
    packed = bytearray(logprobs_to_bytes(logprobs_of(logits, 0, count)))
    packed[data.draw(some.integers(0, len(packed) - 1))] = data.draw(some.integers(0, 255))
    try:
        found = logprobs_from_bytes(bytes(packed), 0, count=count, vocabulary=len(logits))
    except InvalidTokens:
        return
    assert logprobs_to_bytes(found) == bytes(packed)
