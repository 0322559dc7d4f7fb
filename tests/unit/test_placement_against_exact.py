"""Phase 1 against the exact optimum of an integer programme, for up to 12 machines: never worse than 5 %."""

from __future__ import annotations

import random

import pytest
from support.exact_placement import best_score

from troth.routing.placement.hardware import ModelShape, capacity_of
from troth.routing.placement.objective import objective
from troth.routing.placement.search import search

SHAPES = {
    "charges of parts of a layer": ModelShape(24, 100, 0, 130, 70),
    "no charges": ModelShape(36, 100, 0, 0, 0),
    "charges of several layers": ModelShape(20, 100, 0, 350, 280),
    "tied": ModelShape(16, 100, 0, 160, 160, tied=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", SHAPES)
def test_never_worse_than_five_percent(name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")
    shape = SHAPES[name]
    smallest = draw.choice([1, 3])
    memory = [draw.randint(smallest * 100, draw.choice([900, 1400, 2800])) for _ in range(draw.randint(1, 12))]
    if seed % 3 == 0:
        memory = [draw.choice(memory[:4]) for _ in memory]
    capacities = [capacity_of(size, shape, 0) for size in memory]
    aim = objective(draw.choice([0.5, 1.0, 2.0]), draw.choice([0.01, 0.3]), draw.choice([0.001, 0.1]))
    best = best_score(capacities, shape.layers, aim)
    found = search(capacities, shape.layers, aim)
    assert found.score >= 0.95 * best
    assert found.score <= best * (1 + 1e-9) <= found.score_bound * (1 + 2e-9)
