"""The best placement of a few machines by an integer programme, solved by HiGHS: what phase 1 is measured against."""

from __future__ import annotations

from collections.abc import Sequence

import highspy

from troth.routing.placement.hardware import Capacity
from troth.routing.placement.objective import Objective


def best_score(capacities: Sequence[Capacity], layers: int, aim: Objective) -> float:
    """The largest Z(k) over all numbers of pipelines."""
    most = sum(capacity.inner for capacity in capacities) // layers
    scores = [0.0]
    for pipelines in range(1, most + 1):
        stages = fewest_stages(capacities, layers, pipelines)
        if stages is not None:
            scores.append(aim.score(pipelines, stages))
    return max(scores)


def fewest_stages(capacities: Sequence[Capacity], layers: int, pipelines: int) -> int | None:
    """The fewest stages of so many disjoint pipelines; None if there are not so many.

    A machine is a pipeline alone, or a member, perhaps first, perhaps last, of one of the others. Every member has a
    layer, so what members can hold must reach the model and there are at most as many as layers.
    """
    solver = highspy.Highs()
    solver.silent()
    machines, groups = range(len(capacities)), range(pipelines)
    alone = [solver.addBinary() for _ in machines]
    built = [solver.addBinary() for _ in groups]
    member, first, last = ([[solver.addBinary() for _ in groups] for _ in machines] for _ in range(3))
    solver.addConstr(sum(alone) + sum(built) == pipelines)
    for one, capacity in enumerate(capacities):
        solver.addConstr(alone[one] + sum(member[one]) <= 1)
        solver.addConstr(alone[one] <= int(capacity.whole >= layers))
        for group in groups:
            solver.addConstr(first[one][group] + last[one][group] <= member[one][group])
            solver.addConstr(member[one][group] <= built[group])
            solver.addConstr(first[one][group] <= int(capacity.first > 0))
            solver.addConstr(last[one][group] <= int(capacity.last > 0))
            solver.addConstr(member[one][group] <= int(capacity.inner > 0))
    for group in groups:
        solver.addConstr(sum(first[one][group] for one in machines) == built[group])
        solver.addConstr(sum(last[one][group] for one in machines) == built[group])
        solver.addConstr(sum(member[one][group] for one in machines) <= layers)
        solver.addConstr(
            sum(
                capacity.inner * member[one][group]
                + (capacity.first - capacity.inner) * first[one][group]
                + (capacity.last - capacity.inner) * last[one][group]
                for one, capacity in enumerate(capacities)
            )
            >= layers * built[group]
        )
        if group:
            solver.addConstr(built[group - 1] >= built[group])
    solver.minimize(sum(alone) + sum(sum(row) for row in member))
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return round(solver.getObjectiveValue())
