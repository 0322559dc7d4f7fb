"""Products of vectors of floating-point numbers as integers, and how far an honest machine's may be from them.

A finite number is m x 2**(e - 150), m below 2**24. A product of two is m m' x 2**(e + e' - 300), taken in units of
2**-96: what is below a unit is cut off, of its size and not of its sign. Sums of such integers are exact, so that no
order of summation matters. The contracts' library ``ExactNumbers`` has the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidNumbers

UNIT_BITS = 96
"""Sums are in units of 2**-96."""
LARGEST_EXPONENT = 394
"""Largest e + e' of a term: beyond, sums would not fit the contract's word."""
MOST_TERMS = 1 << 16


class NumberFormat(IntEnum):
    """How numbers lie in bytes, little-endian; the values are the contract's."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2

    @property
    def width(self) -> int:
        """Bytes of one number."""
        return 4 if self is NumberFormat.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class ExactVector:
    """Numbers as sign (0 or 1), m and e, each an int64 array; ``finite``: none is an infinity or NaN."""

    sign: NDArray[np.int64]
    mantissa: NDArray[np.int64]
    exponent: NDArray[np.int64]
    finite: bool


@dataclass(frozen=True, slots=True)
class ExactProduct:
    """In units of 2**-96: the sum of all terms, and the sum of their sizes."""

    sum: int
    size: int
    terms: int

    def slack(self, *, rounded: bool) -> int:
        """How far a machine's own sum may be from the exact one, in whatever order and with whatever fused steps.

        With n terms and u = 2**-24 it is at most n u / (1 - n u) of the sizes (Higham, Accuracy and Stability of
        Numerical Algorithms, section 3.1). ``rounded``: in bfloat16 the sum is rounded once more, by at most 2**-8.
        """
        units = ((self.size >> 24) + 1) * (self.terms + 2 + self.terms // 128)
        return units + ((abs(self.sum) + units) >> 8) + 1 if rounded else units


def read_numbers(data: bytes, number_format: NumberFormat, *, rounded: bool = False) -> ExactVector:
    """Numbers of a row of bytes.

    ``rounded``: float32 numbers are first rounded to bfloat16, to nearest, ties to even, as engines load such weights.
    Raises InvalidNumbers where the bytes end in the middle of a number.
    """
    if len(data) % number_format.width:
        raise InvalidNumbers("A row holds whole numbers", len(data), "Pass all of its bytes.")
    if number_format is NumberFormat.FLOAT32:
        bits = np.frombuffer(data, "<u4").astype(np.int64)
        if rounded:
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return _split(bits, mantissa=23, most=0xFF, sign=31, offset=0)
    bits = np.frombuffer(data, "<u2").astype(np.int64)
    if number_format is NumberFormat.BFLOAT16:
        return _split(bits, mantissa=7, most=0xFF, sign=15, offset=16)
    return _split(bits, mantissa=10, most=0x1F, sign=15, offset=125)


def _split(bits: NDArray[np.int64], *, mantissa: int, most: int, sign: int, offset: int) -> ExactVector:
    exponent = (bits >> mantissa) & most
    leading = np.where(exponent > 0, 1 << mantissa, 0)
    kept = (bits & ((1 << mantissa) - 1)) | leading
    return ExactVector((bits >> sign) & 1, kept, np.maximum(exponent, 1) + offset, not bool((exponent == most).any()))


def multiply(one: ExactVector, other: ExactVector) -> ExactProduct:
    """The product of two vectors of one length; raises InvalidNumbers for others, and for terms that are too large."""
    terms = len(one.mantissa)
    if terms != len(other.mantissa) or terms > MOST_TERMS:
        what = f"Two vectors of one length, at most {MOST_TERMS}"
        raise InvalidNumbers(what, (terms, len(other.mantissa)), "Take rows of one model.")
    exponents = one.exponent + other.exponent
    if terms and int(exponents.max()) > LARGEST_EXPONENT:
        raise InvalidNumbers("A term is above 2**142", int(exponents.max()), "Such a row cannot be weighed.")
    products: list[Any] = (one.mantissa * other.mantissa).tolist()
    negative: list[Any] = (one.sign ^ other.sign).tolist()
    total = size = 0
    for product, exponent, minus in zip(products, exponents.tolist(), negative, strict=True):
        shift = exponent - 300 + UNIT_BITS
        term = product << shift if shift >= 0 else product >> -shift
        size += term
        total += -term if minus else term
    return ExactProduct(total, size, terms)
