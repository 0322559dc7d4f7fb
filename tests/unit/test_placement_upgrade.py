"""Idle machines take the places of slower ones that hold no more."""

from __future__ import annotations

from support.atlas import one_region

from troth.routing.placement.hardware import Capacity, Machine, ModelShape, Terms
from troth.routing.placement.parts import upgrade
from troth.routing.placement.placing import place
from troth.routing.placement.staging import Placed

SMALL, LARGE = Capacity(4, 3, 3, 2), Capacity(8, 7, 7, 6)


def test_the_fastest_idle_machine_takes_the_place_of_the_slowest() -> None:
    groups = [[Placed("a", SMALL, 1.0, 0), Placed("b", LARGE, 3.0, 0)], [Placed("c", SMALL, 2.0, 0)]]
    upgrade(groups, [Placed("x", LARGE, 2.5, 0), Placed("y", LARGE, 9.0, 0), Placed("z", SMALL, 1.5, 0)])
    assert [[placed.name for placed in group] for group in groups] == [["y", "b"], ["x"]]


def test_neither_smaller_nor_slower_machines_take_a_place() -> None:
    groups = [[Placed("a", LARGE, 1.0, 0), Placed("b", SMALL, 2.0, 0)]]
    upgrade(groups, [Placed("x", SMALL, 9.0, 0), Placed("y", LARGE, 0.5, 0)])
    assert [placed.name for placed in groups[0]] == ["a", "x"]


def test_a_placement_leaves_the_slow_machine_and_its_score_stays() -> None:
    shape = ModelShape(10, 100, 0, 0, 0)
    machines = [Machine("slow", 400, 3.0), *(Machine(f"fast {number}", 600, 1.0) for number in range(2))]
    placement = place(machines, shape, Terms(), one_region([machine.name for machine in machines], 0.01))
    assert [stage.name for stage in placement.pipelines[0].stages] == ["fast 0", "fast 1"]
    assert placement.score == placement.score_bound
