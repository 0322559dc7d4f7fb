"""Whole layers in float64 have the bits of the exact steps; what is no number spreads as the steps say."""

from __future__ import annotations

import numpy as np
import pytest
from support.arithmetic_vectors import CONFIGS, POSITIONS, operations, small_layer

from troth.protocol.arithmetic.layers import layer_rows, rounded, settled
from troth.protocol.arithmetic.operations import NOT_A_NUMBER, LayerShape, Operation, step, width
from troth.protocol.arithmetic.shapes import layer_shape
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat


@pytest.mark.parametrize("family", list(CONFIGS))
@pytest.mark.parametrize("number_format", list(NumberFormat))
def test_every_element_is_its_steps(family: str, number_format: NumberFormat) -> None:
    rows = small_layer(family, number_format)
    for operation in operations(rows.shape)[1:]:
        # Positions 0 to 2, and one beyond every window.
        for position in (0, 2, POSITIONS - 1):
            row = rows.row(operation, position)
            assert len(row) == width(rows.shape, operation, position)
            # An odd number of them: every column of every head is met.
            for element in range(position % 3, len(row), 3):
                assert rows.element(operation, position, element) == row[element], (operation, position, element)


def test_wild_states_have_the_bits_of_their_steps() -> None:
    """Infinities, NaN, subnormals and the largest numbers, in the state, a key's weights and a norm's."""
    calm = small_layer("llama", NumberFormat.FLOAT32)
    states = calm.numbers[Operation.INPUT].copy()
    states[1] *= np.float32(1e30)
    states[2] *= np.float32(1e-42)
    states[3, 4] = np.inf
    weights = {name: tensor.copy() for name, tensor in calm.weights.items()}
    weights["model.layers.0.self_attn.v_proj.weight"][3] *= np.float32(1e38)
    weights["model.layers.0.mlp.up_proj.weight"][5, 7] = np.nan
    rows = layer_rows(calm.shape, weights, states)
    for operation in operations(rows.shape)[1:]:
        for position in range(POSITIONS):
            row = rows.row(operation, position)
            for element in range(0, len(row), 5):
                assert rows.element(operation, position, element) == row[element], (operation, position, element)
    assert set(rows.row(Operation.INPUT_NORM, 3)) == {NOT_A_NUMBER}
    # Later positions look back at it, earlier ones do not.
    assert set(rows.row(Operation.SUMS, 4)) == {NOT_A_NUMBER}
    assert NOT_A_NUMBER not in rows.row(Operation.SUMS, 2)
    assert rows.row(Operation.UP, 0)[5] == NOT_A_NUMBER != rows.row(Operation.UP, 0)[4]


def test_what_float64_cannot_decide_is_asked_for() -> None:
    middle = 1 + 2.0**-24
    asked: list[tuple[int, ...]] = []

    def decide(place: tuple[int, ...]) -> int:
        asked.append(place)
        return 0x3F800001

    value = np.array([middle, 1.5, middle])
    found = settled(value, np.array([2.0**-60, 2.0**-60, 0]), NumberFormat.FLOAT32, decide)
    # The exact middle is decided: it goes to the even neighbour.
    assert asked == [(0,)]
    assert [float(one) for one in found] == [1 + 2.0**-23, 1.5, 1.0]


def test_float64_is_rounded_once() -> None:
    # Through float32 these would become middles between two bfloat16 numbers, and go to the even one.
    near = np.array([1 + 2.0**-8 + 2.0**-40, 2.0**-133 * 1.5 * (1 + 2.0**-30), -1e39, -0.0])
    found = rounded(near, NumberFormat.BFLOAT16)
    assert [float(one) for one in found[:2]] == [1 + 2.0**-7, 2.0**-132]
    assert np.isnan(found[2])
    assert not np.signbit(found[3])


def _shape() -> LayerShape:
    return layer_shape(CONFIGS["llama"], 0, NumberFormat.FLOAT32)


def test_what_does_not_exist_is_refused() -> None:
    shape = _shape()
    for operation, position, element in (
        (Operation.INPUT, 0, 0),
        (Operation.QUERY, 0, 32),
        (Operation.QUERY, 0, -1),
        (Operation.QUERY, -1, 0),
        (Operation.QUERY_NORM, 0, 0),
        (Operation.SCORES, 1, 8),
        (Operation.OUTPUT, 1 << 20, 0),
    ):
        with pytest.raises(InvalidStep):
            step(shape, operation, position, element)


@pytest.mark.parametrize(
    "changed",
    [
        {"model_type": "phi3"},
        {"mlp_bias": True},
        {"hidden_act": "relu"},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}},
        {"layer_types": ["chunked_attention"] * 6, "sliding_window": 4},
    ],
)
def test_models_that_compute_otherwise_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(InvalidStep, match="left to the court"):
        layer_shape({**CONFIGS["llama"], **changed}, 0, NumberFormat.FLOAT32)
