"""Two logits of one state as integers, and how far an honest machine's may be from them.

A number is m x 2**(e - 150): e is its stored exponent as a float32, m its mantissa, with the leading bit unless e is
zero (numbers below 2**-126 count half). A product of two is m m' x 2**(e + e' - 300), taken in units of 2**-56: what is
below a unit is cut off, of its size and not of its sign. Sums of such integers are exact, so that no order of summation
matters. The contracts' library ``ExactNumbers`` has the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidNumbers

UNIT_BITS = 56
"""Sums are in units of 2**-56."""
MOST_COLUMNS = 1 << 16
COLUMNS_AT_ONCE = 8
STATE_LIMIT = 0x53800000
"""2**40 as a float32: a row that holds a number of this size, an infinity or NaN is no state."""
WEIGHT_LIMIT = 0x47000000
"""2**15: larger weights are not weighed."""
_SIZE = 0x7FFFFFFF


class NumberFormat(IntEnum):
    """How numbers lie in bytes, little-endian; the values are the contract's."""

    FLOAT32 = 0
    BFLOAT16 = 1

    @property
    def width(self) -> int:
        """Bytes of one number."""
        return 4 if self is NumberFormat.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class ExactLogits:
    """In units of 2**-56: the logit of the claimed token, that of its rival, and the sizes of all terms of both.

    ``is_state``: every number of the state is below 2**40; else the logits mean nothing.
    """

    own: int
    others: int
    size: int
    columns: int
    is_state: bool

    def slack(self, *, rounded: bool) -> int:
        """How far a machine's own difference of the two may be from the exact one, whatever order its sums take.

        With n terms and u = 2**-24 it is at most n u / (1 - n u) of the sizes (Higham, Accuracy and Stability of
        Numerical Algorithms, section 3.1). ``rounded``: in bfloat16 each logit is rounded once more, by at most 2**-8.
        """
        units = ((self.size >> 24) + 1) * (self.columns + 2 + self.columns // 128)
        return units + ((abs(self.own) + abs(self.others) + units) >> 8) + 1 if rounded else units


def exact_logits(
    state: bytes,
    state_format: NumberFormat,
    weights: tuple[bytes, bytes],
    weight_format: NumberFormat,
    *,
    rounded: bool,
) -> ExactLogits:
    """The logits of a state by two rows of the head, those of the claimed token and of its rival.

    ``rounded``: float32 weights are first rounded to bfloat16, to nearest, ties to even, as engines load them. Raises
    InvalidNumbers for rows of other lengths, columns that are no multiple of eight, and weights of 2**15 and more.
    """
    columns = len(state) // state_format.width
    if not columns or columns % COLUMNS_AT_ONCE or columns > MOST_COLUMNS:
        raise InvalidNumbers("Numbers come in eights, at most 65,536", columns, "Such a model is not weighed.")
    for row, width in ((state, state_format.width), *((row, weight_format.width) for row in weights)):
        if len(row) != columns * width:
            raise InvalidNumbers(f"A row has {columns} numbers of {width} bytes", len(row), "Take rows of one model.")
    entered = _bits(state, state_format)
    sums = []
    for row in weights:
        bits = _bits(row, weight_format)
        if bool(((bits & _SIZE) >= WEIGHT_LIMIT).any()):
            raise InvalidNumbers("A weight is 2**15 or larger, or no number", columns, "Such a model is not weighed.")
        sums.append(_multiply(entered, round_bits(bits) if rounded else bits))
    is_state = not bool(((entered & _SIZE) >= STATE_LIMIT).any())
    if not is_state:
        return ExactLogits(0, 0, 0, columns, is_state)
    (own, own_size), (others, others_size) = sums
    return ExactLogits(own, others, own_size + others_size, columns, is_state)


def round_bits(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Float32 bits as bfloat16 has them, in the upper half: to nearest, ties to even. Exact ones stay as they are."""
    rounded: NDArray[np.int64] = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded


def _bits(data: bytes, number_format: NumberFormat) -> NDArray[np.int64]:
    """Numbers as the bits of a float32."""
    if number_format is NumberFormat.FLOAT32:
        return np.frombuffer(data, "<u4").astype(np.int64)
    return np.frombuffer(data, "<u2").astype(np.int64) << 16


def _multiply(one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[int, int]:
    """Sum and sizes of the terms."""
    negative: list[Any] = (((one ^ other) >> 31) & 1).tolist()
    exponents: list[Any] = (((one >> 23) & 0xFF) + ((other >> 23) & 0xFF)).tolist()
    products: list[Any] = (_mantissa(one) * _mantissa(other)).tolist()
    total = size = 0
    for product, exponent, minus in zip(products, exponents, negative, strict=True):
        shift = exponent - 300 + UNIT_BITS
        term = product << shift if shift >= 0 else product >> -shift
        size += term
        total += -term if minus else term
    return total, size


def _mantissa(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    leading: NDArray[np.int64] = np.where((bits >> 23) & 0xFF, 1 << 23, 0)
    return (bits & 0x7FFFFF) | leading
