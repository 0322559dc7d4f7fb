"""Functions of float64 with a bound on their error, of additions, products and quotients alone.

Those round as IEEE 754 says on every machine, which a system's own exponential does not. Bounds are several times what
the steps lose, each of which is at most 2**-53 of its result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Bounded = tuple[Doubles, Doubles]
"""Values, and how far each is from the exact one at most."""

LN_2_UPPER, LN_2_LOWER = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; the upper has 33 bits, so that its product with a small integer is exact."""
LARGEST = 700.0
_EXPONENTIAL_LOSS, _TANH_LOSS, _ACTIVATION_LOSS = 2.0**-46, 2.0**-42, 2.0**-44
_TANH = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875)
"""Of the odd powers; below 1/16 the next one is less than 2**-70 of the first."""


def two_sum(one: Doubles, other: Doubles) -> Bounded:
    """The rounded sum, and exactly what it lost (Knuth, The Art of Computer Programming, section 4.2.2)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def exponential(x: Doubles) -> Bounded:
    """exp x where x is at most 700; below -700 as there."""
    clipped = np.clip(x, -LARGEST, LARGEST)
    whole = np.rint(clipped / (LN_2_UPPER + LN_2_LOWER))
    rest = (clipped - whole * LN_2_UPPER) - whole * LN_2_LOWER
    value = np.ones_like(rest)
    # The rest is below 0.35; its power 15 over 15! is less than 2**-62.
    for n in range(14, 0, -1):
        value = 1 + value * rest / n
    value = np.ldexp(value, np.nan_to_num(whole).astype(np.int64))
    return value, value * _EXPONENTIAL_LOSS


def hyperbolic_tangent(x: Doubles) -> Bounded:
    """tanh x, by its series near zero, where the quotient would lose digits."""
    square, series = x * x, np.zeros_like(x)
    for coefficient in reversed(_TANH):
        series = series * square + coefficient
    decay, _ = exponential(-2 * np.abs(x))
    value = np.where(np.abs(x) < 2.0**-4, x * series, np.sign(x) * (1 - decay) / (1 + decay))
    return value, np.abs(value) * _TANH_LOSS


def silu(x: Doubles) -> Bounded:
    """x / (1 + exp(-x))."""
    return _gated(x, np.abs(x))


def gelu_tanh(x: Doubles) -> Bounded:
    """x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x**3)))."""
    size = np.minimum(np.abs(x), 64)
    return _gated(x, 1.5957691216057308 * (size + 0.044715 * size * size * size))


def _gated(x: Doubles, y: Doubles) -> Bounded:
    """x / (1 + exp(-y)) with y's sign as x's; ``y`` is its size, known to 2**-50 of it."""
    decay, _ = exponential(-y)
    value = np.where(x < 0, x * decay, x) / (1 + decay)
    # What y loses is lost of the decay as a share, and more than that where it is cut off.
    return value, np.abs(value) * (_ACTIVATION_LOSS + np.minimum(y, LARGEST) * 2.0**-49) + 2.0**-800 * (y > LARGEST)
