"""Exponential, tanh, activations, cosine and sine of float32 numbers, correctly rounded to float32.

Each is bracketed by integers in units of 2**-p, and p grows until the rounding is decided. It always is: at a rational
number other than zero these functions have irrational values (Lindemann 1882; Niven, Irrational Numbers, chapter 2),
so none is a number of the format or a middle of two. What they give at zero is stated apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt

from troth.protocol.arithmetic.operations import NOT_A_NUMBER, Activation
from troth.protocol.arithmetic.rounding import UNIT_BITS, is_finite, round_between, units
from troth.protocol.exact_numbers import NumberFormat

ONE = 0x3F800000
GUARD = 32
"""More bits than are asked for. What is computed with them is wrong by less than 2**16 of their units."""
_DOUBT = 1 << 16
_FAR = 1 << 11
"""exp(-x) is below every unit that is asked for from here on: e**-2048 is less than 2**-2900."""

Bracket = tuple[int, int]


def exponential(bits: int) -> int:
    """[exp x]32."""
    if not is_finite(bits):
        return NOT_A_NUMBER
    x = units(bits)
    if x == 0:
        return ONE
    if x > 0:
        # Beyond float32 from e**89 on; below, the inverse of exp(-x) is between the inverses of what that is between.
        return NOT_A_NUMBER if x >= 89 << UNIT_BITS else _rounded(lambda p: _inverse(_decay(x, p), p))
    return _rounded(lambda p: _decay(-x, p))


def hyperbolic_tangent(bits: int) -> int:
    """[tanh x]32."""
    if not is_finite(bits):
        return NOT_A_NUMBER
    x = units(bits)
    if x == 0:
        return 0

    def bracket(p: int) -> Bracket:
        low, high = _decay(2 * abs(x), p)
        one = 1 << p
        return _signed(_quotient((one - high, one - low), (one + low, one + high), p), x < 0)

    return _rounded(bracket)


def activation(bits: int, kind: Activation) -> int:
    """[act x]32."""
    if not is_finite(bits):
        return NOT_A_NUMBER
    x = units(bits)
    if x == 0:
        return 0

    def bracket(p: int) -> Bracket:
        # x / (1 + exp(-y)), where y has x's sign; of a negative one x exp(-|y|) / (1 + exp(-|y|)).
        low, high = _decay(abs(x), p) if kind is Activation.SILU else _decay_of_cubic(abs(x), p)
        one, size = 1 << p, abs(x)
        upper = (size * low, size * high) if x < 0 else (size << p, size << p)
        least, most = _quotient(upper, (one + low, one + high), p)
        return _signed((least >> UNIT_BITS, (most >> UNIT_BITS) + 1), x < 0)

    return _rounded(bracket)


def cosine(bits: int) -> int:
    """[cos x]32 of a number that is not negative."""
    if not is_finite(bits):
        return NOT_A_NUMBER
    x = units(bits)
    return ONE if x == 0 else _rounded(lambda p: _turned(x, 1, p))


def sine(bits: int) -> int:
    """[sin x]32 of a number that is not negative."""
    if not is_finite(bits):
        return NOT_A_NUMBER
    x = units(bits)
    return 0 if x == 0 else _rounded(lambda p: _turned(x, 0, p))


def _rounded(bracket: Callable[[int], Bracket]) -> int:
    return round_between(bracket, NumberFormat.FLOAT32)


def _signed(bracket: Bracket, negative: bool) -> Bracket:
    return (-bracket[1], -bracket[0]) if negative else bracket


def _quotient(upper: Bracket, lower: Bracket, p: int) -> Bracket:
    """Of what is positive."""
    return (upper[0] << p) // lower[1], (upper[1] << p) // lower[0] + 1


def _inverse(bracket: Bracket, p: int) -> Bracket:
    """Of what is positive; the upper end is as large as may be where the lower is zero."""
    return (1 << 2 * p) // bracket[1], (1 << 2 * p) // max(bracket[0], 1) + 1


def _decay(x: int, p: int) -> Bracket:
    """exp(-x 2**-149) in units of 2**-p."""
    if x >= _FAR << UNIT_BITS:
        return 0, 1
    w = p + GUARD
    argument = x << (w - UNIT_BITS) if w >= UNIT_BITS else x >> (UNIT_BITS - w)
    return _decay_fixed(argument, p)


def _decay_of_cubic(x: int, p: int) -> Bracket:
    """exp(-2 sqrt(2 / pi) (x + 0.044715 x**3)) in units of 2**-p, x in units of 2**-149."""
    if x >= 64 << UNIT_BITS:
        return 0, 1
    w = p + GUARD
    # The square of the sum is rational but for pi.
    cubic = (1_000_000 * x << 2 * UNIT_BITS) + 44_715 * x**3
    root = isqrt((8 << 3 * w) // pi(w))
    return _decay_fixed(cubic * root // (1_000_000 << 3 * UNIT_BITS), p)


def _decay_fixed(argument: int, p: int) -> Bracket:
    """exp(-argument) in units of 2**-p; the argument, below 2**15, in units of 2**-w with w = p + GUARD.

    The argument may be 2**15 of its units too small, which makes the result too large by as many at most. Of the
    reduced one k < 2**15 units are lost in ln 2, and each of the fewer than 2**10 terms loses one.
    """
    w = p + GUARD
    k, rest = divmod(argument, ln_2(w))
    total = term = 1 << w
    n = 1
    while term:
        term = (term * rest >> w) // n
        total, n = total + (term if n % 2 == 0 else -term), n + 1
    value = total >> k
    return max(value - _DOUBT, 0) >> GUARD, (value + _DOUBT >> GUARD) + 1


def _turned(x: int, quarters: int, p: int) -> Bracket:
    """sin(x 2**-149 + quarters pi / 2) in units of 2**-p; x is not negative."""
    w = p + GUARD + max(x.bit_length() - UNIT_BITS, 0)
    k, rest = divmod(x << w >> UNIT_BITS, pi(w) >> 1)
    quarters += k
    square = rest * rest >> w
    odd = quarters % 2 == 0
    total = term = rest if odd else 1 << w
    n, sign = 1 + odd, -1
    while term:
        term = (term * square >> w) // (n * (n + 1))
        total, n, sign = total + sign * term, n + 2, -sign
    doubt = _DOUBT << max(x.bit_length() - UNIT_BITS, 0)
    bracket = (total - doubt) >> (w - p), (total + doubt >> (w - p)) + 1
    return _signed(bracket, quarters % 4 >= 2)


@lru_cache
def ln_2(w: int) -> int:
    """ln 2 in units of 2**-w, too small by less than two: 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749)."""
    fine = w + 16
    return (18 * _arc(26, fine, 1) - 2 * _arc(4801, fine, 1) + 8 * _arc(8749, fine, 1)) >> 16


@lru_cache
def pi(w: int) -> int:
    """pi in units of 2**-w, too small by less than two: 16 arctan(1/5) - 4 arctan(1/239)."""
    fine = w + 16
    return (16 * _arc(5, fine, -1) - 4 * _arc(239, fine, -1)) >> 16


def _arc(n: int, w: int, sign: int) -> int:
    """artanh(1 / n), or with sign -1 arctan(1 / n), in units of 2**-w."""
    term = total = (1 << w) // n
    divisor, alternating = 1, 1
    while term:
        term //= n * n
        divisor, alternating = divisor + 2, alternating * sign
        total += alternating * (term // divisor)
    return total
