"""How many pipelines a pool of few kinds can have at most: a linear programme over all groups, solved by HiGHS.

Gilmore and Gomory's relaxation (A linear programming approach to the cutting stock problem, 1961): a group may be used
a fractional number of times, so what it allows, rounded down, no plan exceeds.
"""

from __future__ import annotations

import math

import highspy

from troth.routing.placement.covering import Group
from troth.routing.placement.pool import MachinePool, holds

ROUNDING = 1e-6


def least_groups(pool: MachinePool) -> list[Group]:
    """All groups of kinds that hold the model, without those that only add a smaller machine to another."""
    found: list[Group] = []
    growing: list[Group] = [()]
    while growing:
        group = growing.pop()
        for place in range(group[-1] if group else 0, len(pool.kinds)):
            larger = (*group, place)
            if holds([pool.kinds[member] for member in larger], pool.layers):
                found.append(larger)
            elif len(larger) < pool.layers:
                growing.append(larger)
    return found


def most_by_linear_programme(pool: MachinePool, groups: list[Group]) -> int:
    """The most pipelines that the relaxation allows, rounded down. `groups` are those of `least_groups`."""
    solver = highspy.Highs()
    solver.silent()
    used = [solver.addVariable(lb=0) for _ in groups]
    for place, count in enumerate(pool.counts):
        solver.addConstr(sum(group.count(place) * times for group, times in zip(groups, used, strict=True)) <= count)
    solver.maximize(sum(used))
    return math.floor(solver.getObjectiveValue() + ROUNDING)
