"""Layers per machine, exact at both ends and in every order."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from troth.routing.placement.hardware import Capacity, ModelShape, capacity_of
from troth.routing.placement.pool import NO_END, best_ends, holds

SHAPE = ModelShape(layers=36, layer_bytes=90, key_value_bytes=1, embedding_bytes=50, head_bytes=40)


def test_a_charge_costs_a_layer_only_where_it_does_not_fit_beside_them() -> None:
    assert capacity_of(1000, SHAPE, cached_tokens=10) == Capacity(inner=10, first=9, last=9, whole=9)
    assert capacity_of(1040, SHAPE, cached_tokens=10) == Capacity(inner=10, first=9, last=10, whole=9)
    assert capacity_of(1099, SHAPE, cached_tokens=10) == Capacity(inner=10, first=10, last=10, whole=10)


def test_tied_weights_are_paid_once() -> None:
    tied = ModelShape(36, 90, 1, 50, 50, tied=True)
    assert capacity_of(1050, tied, 10) == Capacity(10, 10, 10, 10)
    assert capacity_of(1050, ModelShape(36, 90, 1, 50, 50), 10).whole == 9


@pytest.mark.parametrize("memory", [-1, 0, 39])
def test_a_machine_without_room_holds_nothing(memory: int) -> None:
    assert capacity_of(memory, SHAPE, 10) == Capacity(0, 0, 0, 0)


def test_layers_without_weight_are_at_most_the_model() -> None:
    assert capacity_of(5, ModelShape(7, 0, 0, 5, 6), 0) == Capacity(7, 7, 0, 0)
    assert capacity_of(5, ModelShape(7, -3, -3, -5, -6), -2) == Capacity(7, 7, 7, 7)


def test_ends_are_the_best_pair_of_two_different_machines() -> None:
    kinds = [
        Capacity(9, 9, 9, 8),
        Capacity(9, 8, 9, 8),
        Capacity(4, 3, 4, 2),
        Capacity(1, 0, 0, 0),
        Capacity(5, 3, 2, 1),
    ]
    for size in (2, 3, 4):
        for group in combinations(kinds, size):
            naive = min(
                (one.inner - one.first if one.first else NO_END) + (other.inner - other.last if other.last else NO_END)
                for one, other in permutations(group, 2)
            )
            loss, first, last = best_ends(group)
            assert first != last
            assert loss == naive


def test_a_group_holds_a_model_only_if_each_stage_has_a_layer() -> None:
    one = Capacity(1, 1, 1, 1)
    assert holds([one] * 3, 3)
    assert not holds([one] * 4, 3)
    assert not holds([Capacity(5, 0, 5, 0), Capacity(5, 0, 5, 0)], 6)
    assert holds([Capacity(6, 6, 6, 6)], 6)
    assert not holds([Capacity(9, 9, 9, 5)], 6)
