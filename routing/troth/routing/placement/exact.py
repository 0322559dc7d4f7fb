"""The dynamic programme of phase 1 over (i, residuals, full pipelines), for pools where it is affordable.

The paper's residual is one number per open pipeline. Here an open pipeline is (layers, loss at start, loss at end,
loss of the best pair), so that the charge of embedding and head stays exact whichever machines end up at the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from troth.routing.placement.covering import Group
from troth.routing.placement.pool import NO_END, MachinePool, losses

Open = tuple[int, int, int, int, int]
"""An open pipeline: layers without charges, the least losses at start and end, that of the best pair, its stages."""
State = tuple[int, tuple[Open, ...]]
"""Full pipelines, and the open ones in sorted order."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """How a state was reached: from which, and which open pipeline took the machine (None: skipped or new)."""

    before: State
    took: Open | None
    used: bool


@dataclass(frozen=True, slots=True)
class Frontier:
    """What the programme found: the fewest stages for each number of pipelines, and how to rebuild them."""

    stages: dict[int, int]
    steps: list[dict[State, SearchStep]]
    machines: list[int]


def explore(pool: MachinePool, fewest: int, most: int, affordable: int) -> Frontier | None:
    """The fewest stages for `fewest` ... `most` pipelines; None once more than `affordable` states were seen."""
    machines = [place for place, count in enumerate(pool.counts) for _ in range(count)]
    left = sum(pool.kinds[place].inner for place in machines)
    reached: dict[State, int] = {(0, ()): 0}
    steps: list[dict[State, SearchStep]] = []
    for place in machines:
        left -= pool.kinds[place].inner
        following: dict[State, int] = {}
        how: dict[State, SearchStep] = {}
        for state, stages in reached.items():
            for after, step in _moves(pool, place, state, most):
                cost = stages + step.used
                if cost < following.get(after, NO_END) and _promising(pool, after, left, fewest):
                    following[after], how[after] = cost, step
        affordable -= len(following)
        if affordable < 0:
            return None
        reached = following
        steps.append(how)
    done = {full: stages for (full, still_open), stages in reached.items() if not still_open}
    return Frontier(done, steps, machines)


def rebuild(frontier: Frontier, pool: MachinePool, pipelines: int) -> list[Group]:
    """Walk back from `pipelines` full ones; `pipelines` must be in `frontier.stages`."""
    state: State = (pipelines, ())
    full: list[list[int]] = []
    growing: list[tuple[Open, list[int]]] = []
    for place, how in zip(reversed(frontier.machines), reversed(frontier.steps), strict=True):
        step = how[state]
        if step.used:
            grown = _grow(pool, place, step.took)
            if step.before[0] < state[0]:
                members = [place]
                full.append(members)
            else:
                spot = next(spot for spot, (shape, _) in enumerate(growing) if shape == grown)
                members = growing.pop(spot)[1]
                members.append(place)
            if step.took is not None:
                growing.append((step.took, members))
        state = step.before
    return [tuple(sorted(members)) for members in full]


def _moves(pool: MachinePool, place: int, state: State, most: int) -> Iterator[tuple[State, SearchStep]]:
    full, still_open = state
    yield state, SearchStep(state, None, False)
    if full + len(still_open) < most:
        grown = _grow(pool, place, None)
        yield (full, tuple(sorted((*still_open, grown)))), SearchStep(state, None, True)
    for spot, pipeline in enumerate(still_open):
        if spot and pipeline == still_open[spot - 1]:
            continue
        others = still_open[:spot] + still_open[spot + 1 :]
        grown = _grow(pool, place, pipeline)
        if grown[0] - grown[3] >= pool.layers >= grown[4]:
            yield (full + 1, others), SearchStep(state, pipeline, True)
        elif grown[4] < pool.layers:
            yield (full, tuple(sorted((*others, grown)))), SearchStep(state, pipeline, True)


def _grow(pool: MachinePool, place: int, pipeline: Open | None) -> Open:
    at_start, at_end = losses(pool.kinds[place])
    inner = pool.kinds[place].inner
    if pipeline is None:
        return inner, at_start, at_end, NO_END * 2, 1
    held, start, end, pair, stages = pipeline
    best = min(pair, start + at_end, at_start + end)
    return held + inner, min(start, at_start), min(end, at_end), best, stages + 1


def _promising(pool: MachinePool, state: State, left: int, fewest: int) -> bool:
    full, still_open = state
    spare = left - sum(max(1, pool.least - pipeline[0]) for pipeline in still_open)
    return spare >= 0 and full + len(still_open) + spare // pool.least >= fewest
