"""Canonical arithmetic is what the vectors say: steps by exact integers, layers by float64 with bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.arithmetic_vectors import CONFIGS, PATH, operations, rows_hash, small_layer

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import StepKind
from troth.protocol.exact_numbers import NumberFormat

VECTORS: dict[str, Any] = json.loads(PATH.read_text())


def test_steps() -> None:
    for vector in VECTORS["steps"]:
        operands = [[int(bits, 16) for bits in operand] for operand in vector["operands"]]
        constants = [int(bits, 16) for bits in vector["constants"]]
        kind, number_format = StepKind[vector["kind"]], NumberFormat[vector["format"]]
        assert f"{steps.evaluate(kind, operands, constants, number_format):08x}" == vector["element"], vector


@pytest.mark.parametrize("family", list(CONFIGS))
@pytest.mark.parametrize("number_format", list(NumberFormat))
def test_layers(family: str, number_format: NumberFormat) -> None:
    rows = small_layer(family, number_format)
    (expected,) = (
        one["rows"] for one in VECTORS["layers"] if (one["family"], one["format"]) == (family, number_format.name)
    )
    assert {one.name: rows_hash(rows, one) for one in operations(rows.shape)} == expected
