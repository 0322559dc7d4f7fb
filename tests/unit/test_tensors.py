"""Rows and tokens as bytes: exact sizes, byte order, finiteness, vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from troth.protocol.errors import WireError
from troth.protocol.tensors import (
    Dtype,
    finite,
    row_size,
    rows_from_bytes,
    rows_to_bytes,
    tokens_from_bytes,
    tokens_to_bytes,
    widen,
)

FLOATS = np.array([[1.0, -2.5, 0.0], [1e12, -0.0, 1e-40]], dtype=np.float32)
PATTERNS = np.array([[0x3F80, 0xC020, 0x0000], [0x537F, 0x8000, 0x0001]], dtype=np.uint16)


def test_bytes_are_little_endian_and_come_back() -> None:
    data = rows_to_bytes(FLOATS, Dtype.FLOAT32)
    assert data[:8].hex() == "0000803f000020c0"
    assert np.array_equal(rows_from_bytes(data, 2, 3, Dtype.FLOAT32).view(np.uint32), FLOATS.view(np.uint32))
    data = rows_to_bytes(PATTERNS, Dtype.BFLOAT16)
    assert data[:4].hex() == "803f20c0"
    assert np.array_equal(rows_from_bytes(memoryview(data), 2, 3, Dtype.BFLOAT16), PATTERNS)
    assert (row_size(3, Dtype.FLOAT32), row_size(3, Dtype.BFLOAT16)) == (12, 6)


def test_transposed_rows_travel_in_reading_order() -> None:
    assert rows_to_bytes(FLOATS.T, Dtype.FLOAT32) == rows_to_bytes(np.ascontiguousarray(FLOATS.T), Dtype.FLOAT32)


def test_widening_is_exact() -> None:
    assert widen(PATTERNS, Dtype.BFLOAT16)[0].tolist() == [1.0, -2.5, 0.0]
    assert widen(FLOATS, Dtype.FLOAT32) is FLOATS


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_number_that_is_not_finite(bad: float) -> None:
    rows = FLOATS.copy()
    rows[1, 2] = bad
    assert not finite(rows, Dtype.FLOAT32)
    with pytest.raises(WireError, match="NaN or infinity"):
        rows_to_bytes(rows, Dtype.FLOAT32)
    with pytest.raises(WireError, match="NaN or infinity"):
        rows_from_bytes(rows.tobytes(), 2, 3, Dtype.FLOAT32)


@pytest.mark.parametrize("pattern", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_bfloat16_pattern_that_is_not_finite(pattern: int) -> None:
    rows = PATTERNS.copy()
    rows[0, 0] = pattern
    with pytest.raises(WireError, match="NaN or infinity"):
        rows_from_bytes(rows.tobytes(), 2, 3, Dtype.BFLOAT16)


@pytest.mark.parametrize(
    ("size", "count", "columns"),
    [(24, 2, 4), (24, 3, 3), (23, 2, 3), (25, 2, 3), (0, 2, 3), (0, 0, 3), (24, -2, -3), (0, 1, 0), (24, 2**40, 3),
     (0, 1, 65_537)],
)  # fmt: skip
def test_size_must_be_exact(size: int, count: int, columns: int) -> None:
    with pytest.raises(WireError):
        rows_from_bytes(bytes(size), count, columns, Dtype.FLOAT32)


@pytest.mark.parametrize("rows", [FLOATS[0], FLOATS.astype(np.float64), PATTERNS])
def test_rows_of_another_kind_are_not_sent(rows: np.ndarray) -> None:
    with pytest.raises(WireError):
        rows_to_bytes(rows, Dtype.FLOAT32)


def test_tokens() -> None:
    data = tokens_to_bytes([1, 49151])
    assert data.hex() == "01000000ffbf0000"
    assert tokens_from_bytes(data, 2, 49152) == (1, 49151)
    assert tokens_from_bytes(b"", 0, 49152) == ()
    for count, vocabulary in ((2, 49151), (1, 49152), (3, 49152), (2**62, 49152)):
        with pytest.raises(WireError):
            tokens_from_bytes(data, count, vocabulary)
    with pytest.raises(WireError):
        tokens_to_bytes([-1])
    with pytest.raises(WireError):
        tokens_to_bytes([2**32])
