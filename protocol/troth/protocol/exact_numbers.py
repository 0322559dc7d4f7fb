"""Two logits of one state as integers, and how far an honest machine's may be from them.

A number is m x 2**(e - 150): e is its stored exponent as a float32, m its mantissa with bit 23 set (so zeros and
numbers below 2**-126 count as 2**-127 and more). A product of two is m m' x 2**(e + e' - 300). It is taken in units of
2**-u as m m' x 2**s, where s = e + e' - 300 + u, or zero where that is negative. u is chosen with the numbers, as large
as the largest s allows (``unit_bits``). Sums of such integers are exact, so that no order of summation matters, and
what was chosen is far below what machines lose. The contracts' library ``ExactNumbers`` has the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidNumbers

LEAST_UNIT_BITS, MOST_UNIT_BITS = 55, 120
"""Sums are in units of 2**-55 to 2**-120."""
MOST_SHIFT = 63
"""The largest s: terms have 48 + 63 bits, and 65,536 of them 127."""
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
    """In units of 2**-u: the logit of the claimed token, that of its rival, and the sizes of all terms of both.

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
        Where s is negative, a term is wrong by less than 2**48 units.
        """
        units = ((self.size >> 24) + 1) * (self.columns + 2 + self.columns // 128) + (self.columns << 49)
        return units + ((abs(self.own) + abs(self.others) + units) >> 8) + 1 if rounded else units


def unit_bits(
    state: bytes, state_format: NumberFormat, weights: tuple[bytes, bytes], weight_format: NumberFormat
) -> int:
    """The finest unit in which these rows can be weighed, whether or not weights are rounded first."""
    sizes = [
        int((_bits(row, kind) & _SIZE).max(initial=0) >> 23)
        for row, kind in ((state, state_format), *((row, weight_format) for row in weights))
    ]
    # Rounding may carry into the next exponent.
    largest = min(sizes[0], 166) + min(max(sizes[1:]) + 1, 142)
    return max(min(300 + MOST_SHIFT - largest, MOST_UNIT_BITS), LEAST_UNIT_BITS)


def exact_logits(
    state: bytes,
    state_format: NumberFormat,
    weights: tuple[bytes, bytes],
    weight_format: NumberFormat,
    *,
    rounded: bool,
    unit: int,
) -> ExactLogits:
    """The logits of a state by two rows of the head, those of the claimed token and of its rival, in units of 2**-unit.

    ``rounded``: float32 weights are first rounded to bfloat16, to nearest, ties to even, as engines load them. Raises
    InvalidNumbers for rows of other lengths, columns that are no multiple of eight, weights of 2**15 and more, and a
    unit that is too fine for the largest product.
    """
    columns = len(state) // state_format.width
    if not columns or columns % COLUMNS_AT_ONCE or columns > MOST_COLUMNS:
        raise InvalidNumbers("Numbers come in eights, at most 65,536", columns, "Such a model is not weighed.")
    if not LEAST_UNIT_BITS <= unit <= MOST_UNIT_BITS:
        raise InvalidNumbers("Units are 2**-55 to 2**-120", unit, "Take the one that fits the numbers.")
    for row, width in ((state, state_format.width), *((row, weight_format.width) for row in weights)):
        if len(row) != columns * width:
            raise InvalidNumbers(f"A row has {columns} numbers of {width} bytes", len(row), "Take rows of one model.")
    entered = _bits(state, state_format)
    read = [_bits(row, weight_format) for row in weights]
    if any(bool(((bits & _SIZE) >= WEIGHT_LIMIT).any()) for bits in read):
        raise InvalidNumbers("A weight is 2**15 or larger, or no number", columns, "Such a model is not weighed.")
    if bool(((entered & _SIZE) >= STATE_LIMIT).any()):
        return ExactLogits(0, 0, 0, columns, is_state=False)
    (own, own_size), (others, others_size) = (
        _multiply(entered, round_bits(bits) if rounded else bits, unit) for bits in read
    )
    return ExactLogits(own, others, own_size + others_size, columns, is_state=True)


def round_bits(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Float32 bits as bfloat16 has them, in the upper half: to nearest, ties to even. Exact ones stay as they are."""
    rounded: NDArray[np.int64] = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded


def _bits(data: bytes, number_format: NumberFormat) -> NDArray[np.int64]:
    """Numbers as the bits of a float32."""
    if number_format is NumberFormat.FLOAT32:
        return np.frombuffer(data, "<u4").astype(np.int64)
    return np.frombuffer(data, "<u2").astype(np.int64) << 16


def _multiply(one: NDArray[np.int64], other: NDArray[np.int64], unit: int) -> tuple[int, int]:
    """Sum and sizes of the terms."""
    exponents = ((one >> 23) & 0xFF) + ((other >> 23) & 0xFF) - 300 + unit
    if int(exponents.max()) > MOST_SHIFT:
        raise InvalidNumbers("The unit is too fine for the largest product", unit, "Take a coarser one.")
    negative: list[Any] = (((one ^ other) >> 31) & 1).tolist()
    shifts: list[Any] = np.maximum(exponents, 0).tolist()
    products: list[Any] = (_mantissa(one) * _mantissa(other)).tolist()
    total = size = 0
    for product, shift, minus in zip(products, shifts, negative, strict=True):
        term = product << shift
        size += term
        total += -term if minus else term
    return total, size


def _mantissa(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    mantissa: NDArray[np.int64] = (bits & 0x7FFFFF) | 0x800000
    return mantissa
