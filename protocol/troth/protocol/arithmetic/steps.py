"""One element from its operands, exactly: the reference that every faster evaluation and the contract agree with.

Operands are the bits of float32 numbers. A sum may be taken in parts: ``add`` carries the exact sum over some terms,
and ``conclude`` makes the element of it. ``docs/reference/arithmetic.md`` has the same rules in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.arithmetic.functions import activation, cosine, exponential, hyperbolic_tangent, sine
from troth.protocol.arithmetic.operations import (
    MOST_POSITIONS,
    NO_SUM,
    NOT_A_NUMBER,
    SUM_BYTES,
    SUM_UNIT_BITS,
    Activation,
    StepKind,
)
from troth.protocol.arithmetic.rounding import (
    UNIT_BITS,
    is_finite,
    round_exact,
    round_inverse_root,
    round_ratio,
    units,
)
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat

Bits = Sequence[int]

ONE = 0x3F800000
SUMS = frozenset({StepKind.FACTOR, StepKind.PRODUCT, StepKind.SCORE, StepKind.SUM})
"""The kinds whose element is made of one long sum."""
_SINGLE = {
    StepKind.NORM: 3,
    StepKind.COSINE: 0,
    StepKind.SINE: 0,
    StepKind.ROTATION: 4,
    StepKind.CAP: 1,
    StepKind.EXPONENTIAL: 2,
    StepKind.QUOTIENT: 2,
    StepKind.ADDITION: 2,
    StepKind.GATING: 2,
}
"""How many slices of one number the other kinds have; a MAXIMUM has one slice of any length."""
_CONSTANTS = {
    StepKind.FACTOR: 1,
    StepKind.NORM: 1,
    StepKind.COSINE: 2,
    StepKind.SINE: 2,
    StepKind.ROTATION: 1,
    StepKind.SCORE: 1,
    StepKind.CAP: 1,
    StepKind.GATING: 1,
}
_CHOICES = frozenset({StepKind.NORM, StepKind.ROTATION, StepKind.GATING})


def evaluate(kind: StepKind, operands: Sequence[Bits], constants: Bits, number_format: NumberFormat) -> int:
    """The bits of the element. Raises InvalidStep for operands or constants that the kind does not have."""
    if len(constants) != _CONSTANTS.get(kind, 0):
        raise InvalidStep(f"{kind.name} has {_CONSTANTS.get(kind, 0)} constants", len(constants), "See StepKind.")
    if kind in SUMS:
        factors = _factors(kind)
        biased = kind is StepKind.PRODUCT and len(operands) == 3
        if len(operands) != factors + biased or (biased and len(operands[2]) != 1):
            _refuse(kind, operands)
        last = operands[2][0] if biased else constants[0] if constants else 0
        return conclude(kind, add(kind, 0, operands[:factors]), len(operands[0]), last, number_format)
    if kind is StepKind.MAXIMUM:
        return largest(operands[0]) if len(operands) == 1 else _refuse(kind, operands)
    if [len(operand) for operand in operands] != [1] * _SINGLE[kind]:
        _refuse(kind, operands)
    return _single(kind, [operand[0] for operand in operands], constants, number_format)


def add(kind: StepKind, so_far: int, operands: Sequence[Bits]) -> int:
    """The exact sum so far and some more terms, in units of 2**-298: squares, products, or numbers. NO_SUM stays."""
    if kind not in SUMS or len(operands) != _factors(kind) or len({len(operand) for operand in operands}) != 1:
        _refuse(kind, operands)
    if so_far == NO_SUM or not all(is_finite(bits) for operand in operands for bits in operand):
        return NO_SUM
    first = [units(bits) for bits in operands[0]]
    if kind is StepKind.SUM:
        return so_far + (sum(first) << UNIT_BITS)
    second = first if kind is StepKind.FACTOR else [units(bits) for bits in operands[1]]
    return so_far + sum(x * y for x, y in zip(first, second, strict=True))


def conclude(kind: StepKind, total: int, count: int, last: int, number_format: NumberFormat) -> int:
    """The element of a sum over ``count`` terms; ``last`` is a factor's epsilon, a score's scale, a product's bias, or
    0."""
    if kind not in SUMS or not 1 <= count <= MOST_POSITIONS:
        raise InvalidStep(f"{kind.name} makes no element of a sum of these terms", count, "See StepKind.")
    if total == NO_SUM or not is_finite(last):
        return NOT_A_NUMBER
    match kind:
        case StepKind.FACTOR:
            # The mean and epsilon over one divisor.
            number = total + (count * units(last) << UNIT_BITS)
            return round_inverse_root(number, count, -SUM_UNIT_BITS, number_format)
        case StepKind.SCORE:
            return round_exact(total * units(last), -SUM_UNIT_BITS - UNIT_BITS, number_format)
        case _:
            return round_exact(total + (units(last) << UNIT_BITS), -SUM_UNIT_BITS, number_format)


def largest(numbers: Bits) -> int:
    """The largest of at least one number; NOT_A_NUMBER if one is none."""
    if not numbers:
        raise InvalidStep("A maximum is over one number or more", 0, "Open the row.")
    if not all(is_finite(bits) for bits in numbers):
        return NOT_A_NUMBER
    return round_exact(max(units(bits) for bits in numbers), -UNIT_BITS, NumberFormat.FLOAT32)


def sum_bytes(total: int) -> bytes:
    """A sum so far as it is committed to."""
    return total.to_bytes(SUM_BYTES, "big", signed=True)


def _factors(kind: StepKind) -> int:
    """How many slices a sum's terms come from."""
    return 2 if kind in {StepKind.PRODUCT, StepKind.SCORE} else 1


def _single(kind: StepKind, x: Bits, constants: Bits, number_format: NumberFormat) -> int:
    """The kinds whose slices are single numbers."""
    if kind in {StepKind.COSINE, StepKind.SINE}:
        return _turn(kind, constants, number_format)
    if kind in _CHOICES and constants[0] > 1:
        raise InvalidStep(f"{kind.name} has the constant 0 or 1", constants[0], "See StepKind.")
    if not all(is_finite(bits) for bits in x):
        return NOT_A_NUMBER
    n = [units(bits) for bits in x]
    float32 = NumberFormat.FLOAT32
    match kind:
        case StepKind.NORM:
            weight = n[2]
            if constants[0]:
                weight = units(round_exact(weight + (1 << UNIT_BITS), -UNIT_BITS, float32))
            return round_exact(n[0] * n[1] * weight, -3 * UNIT_BITS, number_format)
        case StepKind.ROTATION:
            other = n[2] * n[3]
            return round_exact(n[0] * n[1] + (other if constants[0] else -other), -2 * UNIT_BITS, number_format)
        case StepKind.CAP:
            if not is_finite(constants[0]):
                return NOT_A_NUMBER
            inner = hyperbolic_tangent(round_ratio(n[0], units(constants[0]), 0, float32))
            return _product(inner, constants[0], number_format)
        case StepKind.EXPONENTIAL:
            return _again(exponential(round_exact(n[0] - n[1], -UNIT_BITS, float32)), number_format)
        case StepKind.QUOTIENT:
            return round_ratio(n[0], n[1], 0, number_format)
        case StepKind.ADDITION:
            return round_exact(n[0] + n[1], -UNIT_BITS, number_format)
        case _:
            return _product(activation(x[0], Activation(constants[0])), x[1], number_format)


def _turn(kind: StepKind, constants: Bits, number_format: NumberFormat) -> int:
    position, frequency = constants
    if not 0 <= position < MOST_POSITIONS or not 0 <= frequency <= ONE:
        raise InvalidStep("Positions are below 2**20, frequencies from 0 to 1", (position, frequency), "Check them.")
    angle = round_exact(position * units(frequency), -UNIT_BITS, NumberFormat.FLOAT32)
    return _again(cosine(angle) if kind is StepKind.COSINE else sine(angle), number_format)


def _product(one: int, other: int, number_format: NumberFormat) -> int:
    if not is_finite(one) or not is_finite(other):
        return NOT_A_NUMBER
    return round_exact(units(one) * units(other), -2 * UNIT_BITS, number_format)


def _again(bits: int, number_format: NumberFormat) -> int:
    """A float32 in the step's format."""
    return round_exact(units(bits), -UNIT_BITS, number_format) if is_finite(bits) else NOT_A_NUMBER


def _refuse(kind: StepKind, operands: Sequence[Bits]) -> int:
    sizes = [len(operand) for operand in operands]
    raise InvalidStep(f"{kind.name} has no operands of these lengths", sizes, "Take those of `step`.")
