"""Float32 and bfloat16 numbers as exact integers, and real numbers rounded back to them.

A finite float32 is an integer in units of 2**-149. A real number reaches a number format through ``round_real``: to
nearest, ties to even, +0 for zero, and NOT_A_NUMBER beyond the largest finite number. Numbers travel as the bits of a
float32; those of a bfloat16 have sixteen zeros below.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from troth.protocol.arithmetic.operations import NOT_A_NUMBER
from troth.protocol.exact_numbers import NumberFormat

UNIT_BITS = 149
"""Every finite float32 is a whole number of 2**-149."""
INFINITY = 0x7F800000
_SIGN = 0x80000000
_LEAST_BITS = 32
"""Enough bits that what is cut off below them can be told by one more bit that says that something was."""


def is_finite(bits: int) -> bool:
    """Whether float32 bits are a finite number."""
    return bits & INFINITY != INFINITY


def units(bits: int) -> int:
    """A finite float32 in units of 2**-149."""
    exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
    size = (mantissa | 0x800000) << (exponent - 1) if exponent else mantissa
    return -size if bits & _SIGN else size


def round_real(size: int, exponent: int, *, negative: bool, inexact: bool, number_format: NumberFormat) -> int:
    """The bits nearest to a real number of size ``size * 2**exponent``, or, if ``inexact``, between that and
    ``(size + 1) * 2**exponent``; ``size`` then has 32 bits or more, or is far below the smallest number."""
    if size == 0:
        return 0
    kept = 24 if number_format is NumberFormat.FLOAT32 else 8
    # The last place: of a number of this size, or of all that are too small for a mantissa of their own.
    place = max(size.bit_length() + exponent - kept, -UNIT_BITS + 24 - kept)
    shift = place - exponent
    if shift <= 0:
        mantissa = size << -shift
    else:
        mantissa, rest, half = size >> shift, size & ((1 << shift) - 1), 1 << (shift - 1)
        if rest > half or (rest == half and (inexact or mantissa & 1)):
            mantissa += 1
    # A mantissa without its first bit is one of exponent 1, so that both are added as one number; it may carry.
    base = max(place + UNIT_BITS - (24 - kept), 0)
    bits = ((base << (kept - 1)) + mantissa) << (24 - kept)
    if bits >= INFINITY:
        return NOT_A_NUMBER
    return bits | _SIGN if negative and bits else bits


def round_exact(number: int, exponent: int, number_format: NumberFormat) -> int:
    """The bits nearest to ``number * 2**exponent``."""
    return round_real(abs(number), exponent, negative=number < 0, inexact=False, number_format=number_format)


def round_ratio(number: int, divisor: int, exponent: int, number_format: NumberFormat) -> int:
    """The bits nearest to ``number / divisor * 2**exponent``; a divisor of zero gives NOT_A_NUMBER."""
    if divisor == 0:
        return NOT_A_NUMBER
    shift = max(_LEAST_BITS + abs(divisor).bit_length() - abs(number).bit_length(), 0) + 1
    size, rest = divmod(abs(number) << shift, abs(divisor))
    return round_real(
        size,
        exponent - shift,
        negative=(number < 0) != (divisor < 0),
        inexact=rest != 0,
        number_format=number_format,
    )


def round_inverse_root(number: int, divisor: int, exponent: int, number_format: NumberFormat) -> int:
    """The bits nearest to ``1 / sqrt(number / divisor * 2**exponent)`` of a number that is not negative, an even
    exponent; zero gives NOT_A_NUMBER."""
    if number <= 0:
        return NOT_A_NUMBER
    shift = max(2 * _LEAST_BITS + number.bit_length() - divisor.bit_length(), 0) // 2 + 1
    quotient, rest = divmod(divisor << 2 * shift, number)
    size = isqrt(quotient)
    inexact = rest != 0 or size * size != quotient
    return round_real(size, -exponent // 2 - shift, negative=False, inexact=inexact, number_format=number_format)


def round_between(bracket: Callable[[int], tuple[int, int]], number_format: NumberFormat) -> int:
    """The bits nearest to a real number that is no number of the format and no middle of two.

    ``bracket`` gives, for a precision p, two integers that it lies between in units of 2**-p. It is asked for more
    precision until both round alike (Ziv 1991), which happens because the number is no boundary itself.
    """
    precision = 256
    while True:
        low, high = bracket(precision)
        found = round_exact(low, -precision, number_format)
        if found == round_exact(high, -precision, number_format):
            return found
        precision *= 2
