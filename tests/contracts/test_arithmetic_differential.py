"""Canonical arithmetic in Solidity and in Python: the same element for every kind, over all of float32's edges."""

from __future__ import annotations

import json
from math import isqrt
from random import Random
from typing import Any

import numpy as np
import pytest
from support.arithmetic_vectors import PATH, drawn_step
from web3.exceptions import ContractCustomError

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import NO_SUM, SUM_BYTES, StepKind
from troth.protocol.arithmetic.rounding import UNIT_BITS, is_finite, round_exact, units
from troth.protocol.exact_numbers import NumberFormat, round_bits
from troth.protocol.hashing import keccak256

FLOAT32, BFLOAT16 = NumberFormat.FLOAT32, NumberFormat.BFLOAT16
WRONG_STEP, WRONG_OPERAND, NOT_ONE_NUMBER, OUT_OF_RANGE = (
    "0x" + keccak256(text)[:4].hex()
    for text in (
        b"WrongStep(uint8,uint256,uint256)",
        b"WrongOperand(uint256,uint256)",
        b"NotOneNumber(uint256,uint256)",
        b"OutOfRange(uint256)",
    )
)
ONE = 0x3F800000
Operand = tuple[int, bool, bytes]


def _operand(numbers: list[int], number_format: NumberFormat = FLOAT32, *, rounded: bool = False) -> Operand:
    """As the contract takes it; bfloat16 numbers are the upper halves."""
    if number_format is BFLOAT16:
        return int(number_format), rounded, np.array([bits >> 16 for bits in numbers], "<u2").tobytes()
    return int(number_format), rounded, np.array(numbers, "<u4").tobytes()


def _read(numbers: list[int], number_format: NumberFormat, *, rounded: bool) -> list[int]:
    """The bits that the contract reads of such an operand."""
    if number_format is BFLOAT16:
        return [bits & 0xFFFF0000 for bits in numbers]
    made = [int(bits) for bits in round_bits(np.array(numbers, np.int64))]
    return [one if rounded and is_finite(bits) else bits for one, bits in zip(made, numbers, strict=True)]


def _written(source: Random, kind: StepKind) -> tuple[Any, int]:
    """A step with operands of any formats as the contract takes it, and its element."""
    operands, constants, made = drawn_step(source, kind)
    given, read = [], []
    for numbers in operands:
        number_format, rounded = source.choice(list(NumberFormat)), source.random() < 0.5
        given.append(_operand(numbers, number_format, rounded=rounded))
        read.append(_read(numbers, number_format, rounded=rounded))
    return (int(kind), given, constants, int(made)), steps.evaluate(kind, read, constants, made)


@pytest.mark.parametrize("kind", list(StepKind))
def test_elements_are_the_same_over_all_edges(arithmetic_harness: Any, kind: StepKind) -> None:
    source = Random(19 + int(kind))
    made = [_written(source, kind) for _ in range(150)]
    found = arithmetic_harness.functions.evaluate([step for step, _ in made]).call()
    wrong = [(step, hex(one), hex(other)) for (step, one), other in zip(made, found, strict=True) if one != other]
    assert not wrong


def test_the_contract_is_what_the_vectors_say(arithmetic_harness: Any) -> None:
    vectors = json.loads(PATH.read_text())["steps"]
    given = [
        (
            int(StepKind[one["kind"]]),
            [_operand([int(bits, 16) for bits in operand]) for operand in one["operands"]],
            [int(bits, 16) for bits in one["constants"]],
            int(NumberFormat[one["format"]]),
        )
        for one in vectors
    ]
    found = arithmetic_harness.functions.evaluate(given).call()
    assert [f"{element:08x}" for element in found] == [one["element"] for one in vectors]


@pytest.mark.parametrize("columns", [576, 1536])
def test_long_products_of_usual_and_far_numbers(arithmetic_harness: Any, columns: int) -> None:
    source = Random(columns)
    for far in (0, 1, columns // 3):
        rows = [
            [
                source.getrandbits(1) << 31 | source.randrange(100, 132) << 23 | source.getrandbits(23)
                for _ in range(columns)
            ]
            for _ in range(2)
        ]
        for place in source.sample(range(columns), far):
            rows[0][place], rows[1][place] = source.choice(((1, 5), (0x7F7FFFFF, 0x40000001), (0x7F7FFFFF, 1), (0, 9)))
        expected = steps.evaluate(StepKind.PRODUCT, rows, [], FLOAT32)
        step = (int(StepKind.PRODUCT), [_operand(row) for row in rows], [], int(FLOAT32))
        assert arithmetic_harness.functions.check(step, expected).call()
        for other in {expected ^ 1, expected ^ 0x80000000, 0x7FC00000} - {expected}:
            assert not arithmetic_harness.functions.check(step, other).call()


@pytest.mark.parametrize("kind", sorted(steps.SUMS))
def test_sums_in_parts_are_the_same_integers(arithmetic_harness: Any, kind: StepKind) -> None:
    source = Random(int(kind))
    for _ in range(12):
        operands, _, _ = drawn_step(source, kind)
        terms = operands[: 2 if kind in {StepKind.PRODUCT, StepKind.SCORE} else 1]
        so_far = source.choice((0, 1, -1, NO_SUM, source.getrandbits(570), -source.getrandbits(300)))
        expected = steps.sum_bytes(steps.add(kind, so_far, terms))
        words = [int.from_bytes(steps.sum_bytes(so_far)[at : at + 32]) for at in range(0, SUM_BYTES, 32)]
        given = [_operand(numbers) for numbers in terms]
        found = arithmetic_harness.functions.add(int(kind), words, given).call()
        assert b"".join(word.to_bytes(32) for word in found) == expected


def _squares(total: int) -> list[int]:
    """Numbers whose squares come to a total of units of 2**-298 but for a little: each takes what it can."""
    found = []
    while total > 1 and len(found) < 10:
        bits = round_exact(isqrt(total), -UNIT_BITS, FLOAT32)
        bits -= units(bits) ** 2 > total
        found.append(bits)
        total -= units(bits) ** 2
    return found


@pytest.mark.parametrize("place", [-120, -50, -24, -3, 20, 60])
def test_a_factor_beside_a_middle_goes_to_its_side(arithmetic_harness: Any, place: int) -> None:
    """Rows chosen so that the inverse root is nearer to a middle than any approximation tells."""
    source = Random(place)
    for _ in range(6):
        middle = source.randrange(1 << 24, 1 << 25) | 1
        # So many numbers that their count is known before they are: zeros make it up.
        count = 12
        bound = (count << 298 - 2 * place) // middle**2
        below = _squares(bound)
        assert 0 <= bound - sum(units(bits) ** 2 for bits in below) < bound >> 100
        # One more unit of the last number's square takes the root to the middle's other side.
        above = [*below[:-1], below[-1] + 1]
        assert sum(units(bits) ** 2 for bits in above) > bound
        for numbers in (below, above):
            row = numbers + [0] * (count - len(numbers))
            expected = steps.evaluate(StepKind.FACTOR, [row], [0], FLOAT32)
            step = (int(StepKind.FACTOR), [_operand(row)], [0], int(FLOAT32))
            assert arithmetic_harness.functions.evaluate([step]).call() == [expected]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ((StepKind.PRODUCT, [_operand([ONE])], [], 0), WRONG_STEP),
        ((StepKind.PRODUCT, [_operand([ONE])] * 4, [], 0), WRONG_STEP),
        ((StepKind.PRODUCT, [_operand([ONE]), _operand([ONE] * 2)], [], 0), WRONG_OPERAND),
        ((StepKind.PRODUCT, [(0, False, b"\0" * 5), (0, False, b"\0" * 5)], [], 0), WRONG_OPERAND),
        ((StepKind.PRODUCT, [_operand([ONE]), _operand([ONE]), _operand([ONE] * 2)], [], 0), NOT_ONE_NUMBER),
        ((StepKind.SUM, [_operand([])], [], 0), OUT_OF_RANGE),
        ((StepKind.SUM, [_operand([ONE])], [ONE], 0), WRONG_STEP),
        ((StepKind.MAXIMUM, [_operand([])], [], 0), OUT_OF_RANGE),
        ((StepKind.SCORE, [_operand([ONE]), _operand([ONE])], [], 0), WRONG_STEP),
        ((StepKind.ADDITION, [_operand([ONE]), _operand([ONE] * 2)], [], 0), NOT_ONE_NUMBER),
        ((StepKind.ADDITION, [_operand([ONE])], [], 0), WRONG_STEP),
        ((StepKind.NORM, [_operand([ONE])] * 3, [2], 0), OUT_OF_RANGE),
        ((StepKind.COSINE, [], [1 << 20, ONE], 0), OUT_OF_RANGE),
        ((StepKind.COSINE, [], [1, ONE + 1], 0), OUT_OF_RANGE),
        ((StepKind.SINE, [], [1], 0), WRONG_STEP),
    ],
)
def test_steps_of_another_form_are_refused(arithmetic_harness: Any, step: tuple[Any, ...], error: str) -> None:
    with pytest.raises(ContractCustomError) as raised:
        arithmetic_harness.functions.evaluate([(int(step[0]), *step[1:])]).call()
    assert str(raised.value.data).startswith(error)
