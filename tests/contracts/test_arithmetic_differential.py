"""Canonical arithmetic in Solidity and in Python: the same element for every kind, over all of float32's edges."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import NO_SUM, NOT_A_NUMBER, StepKind
from troth.protocol.exact_numbers import NumberFormat, round_bits

EDGES = (
    *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000003, 0x80000003, 0x007FFFFF, 0x00800000, 0x80800001),
    *(0x3F7FFFFF, 0x3F800000, 0xBF800000, 0x3F808000, 0x3F818000, 0x33000000, 0xB3000000, 0x7F7FFFFF, 0xFF7FFFFF),
    *(0x42D00000, 0xC2CFFFFF, 0x42B17217, 0x42B17218, 0xC2AEAC50, 0x30800000, 0x307FFFFF, 0x39000000, 0x38FFFFFF),
    *(0x41000000, 0x42000000, 0xC1800000, 0xC3000000, 0xC17FFFFF, 0xC2FFFFFF, 0x417FFFFF, 0x41FFFFFF),
)
NO_NUMBERS = (0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF)
SINGLE = {
    StepKind.NORM: 3,
    StepKind.ROTATION: 4,
    StepKind.CAP: 1,
    StepKind.EXPONENTIAL: 2,
    StepKind.QUOTIENT: 2,
    StepKind.ADDITION: 2,
    StepKind.GATING: 2,
}


def _number(source: Random, *, wild: bool = True) -> int:
    """An edge, any bits, or a number of the size that models have."""
    drawn = source.random()
    if wild and drawn < 0.02:
        return source.choice(NO_NUMBERS)
    if wild and drawn < 0.25:
        return source.choice(EDGES)
    if wild and drawn < 0.4:
        return source.getrandbits(32)
    return source.getrandbits(1) << 31 | source.randrange(100, 133) << 23 | source.getrandbits(23)


def _operand(numbers: list[int], number_format: NumberFormat, *, rounded: bool = False) -> tuple[int, bool, bytes]:
    """As the contract takes it; bfloat16 numbers are the upper halves."""
    if number_format is NumberFormat.BFLOAT16:
        return int(number_format), rounded, np.array([bits >> 16 for bits in numbers], "<u2").tobytes()
    return int(number_format), rounded, np.array(numbers, "<u4").tobytes()


def _read(numbers: list[int], number_format: NumberFormat, *, rounded: bool) -> list[int]:
    """The bits that the contract reads of such an operand."""
    if number_format is NumberFormat.BFLOAT16:
        return [bits & 0xFFFF0000 for bits in numbers]
    if not rounded:
        return numbers
    finite = [bits & 0x7F800000 != 0x7F800000 for bits in numbers]
    rounded_bits = round_bits(np.array(numbers, np.int64))
    return [int(one) if is_one else bits for one, bits, is_one in zip(rounded_bits, numbers, finite, strict=True)]


def _step(source: Random, kind: StepKind, count: int) -> tuple[Any, int]:
    """A step as the contract takes it, and its element."""
    wild = source.random() < 0.5
    sizes = [1] * SINGLE.get(kind, 0)
    if kind in steps.SUMS or kind is StepKind.MAXIMUM:
        sizes = [count] * (2 if kind in {StepKind.PRODUCT, StepKind.SCORE} else 1)
        sizes += [1] * (kind is StepKind.PRODUCT and source.random() < 0.5)
    operands, read = [], []
    for size in sizes:
        numbers = [_number(source, wild=wild) for _ in range(size)]
        number_format, rounded = source.choice(list(NumberFormat)), source.random() < 0.5
        operands.append(_operand(numbers, number_format, rounded=rounded))
        read.append(_read(numbers, number_format, rounded=rounded))
    constants: list[int] = []
    if kind in {StepKind.NORM, StepKind.ROTATION, StepKind.GATING}:
        constants = [source.getrandbits(1)]
    elif kind in {StepKind.FACTOR, StepKind.SCORE, StepKind.CAP}:
        constants = [_number(source, wild=wild)]
    elif kind in {StepKind.COSINE, StepKind.SINE}:
        constants = [source.choice((0, 1, source.randrange(1 << 20), (1 << 20) - 1)), source.randrange(0x3F800001)]
        constants[1] = source.choice((constants[1], 0, 0x3F800000, 0x3F000000 | source.getrandbits(23)))
    made = source.choice(list(NumberFormat))
    element = steps.evaluate(kind, read, constants, made)
    return (int(kind), operands, constants, int(made)), element


@pytest.mark.parametrize("kind", list(StepKind))
def test_elements_are_the_same_over_all_edges(arithmetic_harness: Any, kind: StepKind) -> None:
    source = Random(19 + int(kind))
    counts = [1, 2, 7, 8, 9, 15, 16, 17, 64, 100] if kind in steps.SUMS or kind is StepKind.MAXIMUM else [1] * 40
    for _ in range(4):
        made = [_step(source, kind, count) for count in counts]
        found = arithmetic_harness.functions.evaluate([step for step, _ in made]).call()
        wrong = [(step, hex(one), hex(other)) for (step, one), other in zip(made, found, strict=True) if one != other]
        assert not wrong
