"""Water-filling: sums, capacities, and nobody could be helped by a layer more than rounding costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.routing.placement.staging import shares


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    capacities = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=12)))
    speeds = tuple(draw(st.floats(1e-3, 1e3)) for _ in capacities)
    return capacities, speeds, draw(st.integers(len(capacities), sum(capacities)))


@given(pipelines())
def test_shares_fill_the_model_within_capacities(case: tuple[tuple[int, ...], tuple[float, ...], int]) -> None:
    capacities, speeds, layers = case
    given_out = shares(capacities, speeds, layers)
    assert sum(given_out) == layers
    assert all(1 <= share <= capacity for share, capacity in zip(given_out, capacities, strict=True))


@pytest.mark.slow
@given(pipelines())
def test_a_stage_below_its_capacity_is_within_a_layer_of_its_part(
    case: tuple[tuple[int, ...], tuple[float, ...], int],
) -> None:
    """One level fits all: no stage that could take more is a layer below it, no stage of two or more is one above."""
    capacities, speeds, layers = case
    given_out = shares(capacities, speeds, layers)
    low = (
        max((share - 1) / speed for share, speed in zip(given_out, speeds, strict=True) if share > 1)
        if any(share > 1 for share in given_out)
        else 0.0
    )
    high = min(
        ((share + 1) / speed for share, speed, cap in zip(given_out, speeds, capacities, strict=True) if share < cap),
        default=low,
    )
    assert low <= high * (1 + 1e-9)


def test_layers_go_by_speed() -> None:
    assert shares((12, 12, 12), (4.0, 2.0, 2.0), 16) == (8, 4, 4)
    assert shares((6, 12, 12), (4.0, 2.0, 2.0), 16) == (6, 5, 5)
    assert shares((12, 12, 12), (1.0, 1.0, 1.0), 16) == (6, 5, 5)
    assert shares((12, 12), (1000.0, 1.0), 12) == (11, 1)
