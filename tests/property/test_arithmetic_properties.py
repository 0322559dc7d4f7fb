"""Canonical arithmetic for any numbers: IEEE 754 where that says what is right, and sums that have no order."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from math import cos, sin

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from troth.protocol.arithmetic import functions, steps
from troth.protocol.arithmetic.operations import NO_SUM, NOT_A_NUMBER, Activation, StepKind
from troth.protocol.arithmetic.rounding import UNIT_BITS, is_finite, round_exact, round_ratio, units
from troth.protocol.exact_numbers import NumberFormat, round_bits

FLOAT32, BFLOAT16 = NumberFormat.FLOAT32, NumberFormat.BFLOAT16
EDGES = (
    *(0, 0x80000000, 1, 0x80000001, 3, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000),
    *(0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x33000000, 0x42B17217, 0x42B17218, 0xC2CFF1B4, 0xC2CFF1B5, 0x30800000),
)
any_bits = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << 32) - 1))
usual = st.builds(
    lambda sign, exponent, mantissa: sign << 31 | exponent << 23 | mantissa,
    st.integers(0, 1), st.integers(100, 140), st.integers(0, (1 << 23) - 1),
)  # fmt: skip
numbers = st.one_of(any_bits, usual)
PRECISE = Context(prec=90, Emin=-10_000, Emax=10_000)


@given(numbers, numbers)
def test_one_operation_is_that_of_ieee_754(one: int, other: int) -> None:
    first, second = (np.uint32(bits).view(np.float32) for bits in (one, other))
    with np.errstate(all="ignore"):
        for kind, found in (
            (StepKind.ADDITION, first + second),
            (StepKind.QUOTIENT, first / second),
            (StepKind.PRODUCT, first * second),
        ):
            usable = is_finite(one) and is_finite(other) and np.isfinite(found)
            expected = int((found + np.float32(0)).view(np.uint32)) if usable else NOT_A_NUMBER
            assert steps.evaluate(kind, [[one], [other]], [], FLOAT32) == expected


@given(any_bits)
def test_bfloat16_is_the_nearest_with_half_the_bits(bits: int) -> None:
    found = steps.evaluate(StepKind.SUM, [[bits]], [], BFLOAT16)
    rounded = int(round_bits(np.array([bits], np.int64))[0])
    usable = is_finite(bits) and is_finite(rounded)
    assert found == (rounded if usable and rounded != 0x80000000 else 0 if usable else NOT_A_NUMBER)


@pytest.mark.slow
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.randoms(), st.integers(0, 12))
def test_a_sum_has_no_order_and_any_parts(pairs: list[tuple[int, int]], source: object, cut: int) -> None:
    turned = list(pairs)
    source.shuffle(turned)  # type: ignore[attr-defined]
    rows, others = ([list(row) for row in zip(*order, strict=True)] for order in (pairs, turned))
    whole = steps.add(StepKind.PRODUCT, 0, rows)
    assert steps.add(StepKind.PRODUCT, 0, others) == whole
    part = steps.add(StepKind.PRODUCT, 0, [row[:cut] for row in rows])
    assert steps.add(StepKind.PRODUCT, part, [row[cut:] for row in rows]) == whole
    assert len(steps.sum_bytes(whole)) == 96
    if whole == NO_SUM:
        return
    exact = sum(Fraction(units(x) * units(y), 1 << 2 * UNIT_BITS) for x, y in pairs)
    expected = round_ratio(exact.numerator, exact.denominator, 0, FLOAT32)
    assert steps.evaluate(StepKind.PRODUCT, rows, [], FLOAT32) == expected


@given(st.lists(numbers, min_size=1, max_size=12))
def test_a_maximum_is_the_largest(drawn: list[int]) -> None:
    values = np.array(drawn, np.uint32).view(np.float32)
    expected = np.max(values) + np.float32(0) if np.isfinite(values).all() else np.float32(np.nan)
    found = np.uint32(steps.evaluate(StepKind.MAXIMUM, [drawn], [], FLOAT32)).view(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.slow
@given(st.lists(usual, min_size=1, max_size=12), usual.map(lambda bits: bits & 0x7FFFFFFF))
def test_a_factor_is_the_inverse_root(drawn: list[int], epsilon: int) -> None:
    found = steps.evaluate(StepKind.FACTOR, [drawn], [epsilon], FLOAT32)
    mean = sum(Fraction(units(bits), 1 << UNIT_BITS) ** 2 for bits in drawn) / len(drawn)
    value = mean + Fraction(units(epsilon), 1 << UNIT_BITS)
    # Both middles around it, squared, are on their sides of the value's inverse.
    for neighbour, above in ((found - 1, False), (found + 1, True)):
        middle = Fraction(units(found) + units(neighbour), 1 << UNIT_BITS + 1)
        assert (middle * middle * value > 1) == above


def _decimal(bits: int) -> Decimal:
    return PRECISE.divide(Decimal(units(bits)), Decimal(1 << UNIT_BITS))


def _rounded(value: Decimal) -> int:
    exact = Fraction(value)
    return round_ratio(exact.numerator, exact.denominator, 0, FLOAT32)


@given(st.one_of(usual, st.sampled_from(EDGES).filter(lambda bits: is_finite(bits) and bits & 0x7FFFFFFF > 1 << 23)))
@example(0xC2CFF1B4)
@example(0xC2AEAC50)
@example(0x42B17217)
def test_functions_are_those_of_decimals_of_ninety_digits(bits: int) -> None:
    x = _decimal(bits)
    if abs(x) < 80:
        assert functions.exponential(bits) == _rounded(PRECISE.exp(x))
    decay = PRECISE.exp(-2 * abs(x)) if abs(x) < 2_000 else Decimal(0)
    tangent = PRECISE.divide(1 - decay, 1 + decay).copy_sign(x)
    if abs(x) > Decimal("1e-6"):
        assert functions.hyperbolic_tangent(bits) == _rounded(tangent)
    decay = PRECISE.exp(-abs(x)) if abs(x) < 2_000 else Decimal(0)
    silu = PRECISE.divide(PRECISE.multiply(x, decay) if x < 0 else x, 1 + decay)
    assert functions.activation(bits, Activation.SILU) == _rounded(silu)


@settings(max_examples=50)
@given(st.integers(0, (1 << 20) - 1), st.integers(0, 0x3F800000))
def test_turns_are_near_the_systems_own(position: int, frequency: int) -> None:
    angle = round_exact(position * units(frequency), -UNIT_BITS, FLOAT32)
    value = float(np.uint32(angle).view(np.float32))
    for kind, function in ((StepKind.COSINE, cos), (StepKind.SINE, sin)):
        found = np.uint32(steps.evaluate(kind, [], [position, frequency], FLOAT32)).view(np.float32)
        near = function(value)
        assert abs(float(found) - near) <= float(np.spacing(np.float32(abs(near)))) * (0.5 + 2.0**-20)
