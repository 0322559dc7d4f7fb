"""Phase 1 on 256 mixed machines against the relaxation of the integer programme over all groups of machines."""

from __future__ import annotations

import pytest
from support.linear_bound import least_groups, most_by_linear_programme
from support.machine_pools import DENSE_80, gpus_of, machines_of

from troth.routing.placement.hardware import Capacity, capacity_of
from troth.routing.placement.objective import most_pipelines, objective
from troth.routing.placement.pool import holds, pool_of
from troth.routing.placement.search import search


def test_the_relaxation_by_hand() -> None:
    pool = pool_of([Capacity(5, 5, 5, 5)] * 5 + [Capacity(2, 2, 2, 2)] * 2, 7)
    assert set(least_groups(pool)) == {(0, 0), (0, 1), (1, 1, 1, 1)}
    assert most_by_linear_programme(pool, least_groups(pool)) == 3  # 2 of (5, 2), and one and a half of (5, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_at_most_one_pipeline_less_than_the_relaxation_allows(seed: int) -> None:
    machines = machines_of(gpus_of("4 types", 256, seed), DENSE_80)
    capacities = [capacity_of(machine.memory_bytes, DENSE_80, 0) for machine in machines]
    pool = pool_of(capacities, DENSE_80.layers)
    groups = least_groups(pool)
    assert all(holds([pool.kinds[place] for place in group], pool.layers) for group in groups)
    allowed = most_by_linear_programme(pool, groups)
    built = len(search(capacities, DENSE_80.layers, objective(2.0, 0.1, 0.01)).groups)
    assert allowed - 1 <= built <= allowed <= most_pipelines(pool)
