"""The best number of pipelines for one region, and which kinds of machines form each: step (iii) of phase 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from troth.routing.placement.covering import Group
from troth.routing.placement.exact import explore, rebuild
from troth.routing.placement.hardware import Capacity
from troth.routing.placement.objective import Objective, most_pipelines, stage_bounds
from troth.routing.placement.packing import Packer, next_fit, trimmed
from troth.routing.placement.pool import MachinePool, pool_of

PACKINGS = 4
"""Numbers of pipelines that are packed before the search is content: the first is nearly always the best."""
AFFORDABLE = ((16, 60_000), (32, 2_000))
"""States of the exact programme for up to so many machines: a second at worst, then twenty milliseconds. A state
counts for every machine, so beyond that it would be given up anyway."""


@dataclass(frozen=True, slots=True)
class Found:
    """`alone` machines host the whole model; `groups` of kinds of `pool` host it together.

    `pipelines_bound` and `score_bound` hold for every placement of the machines; where `score` equals its bound the
    answer is the best there is.
    """

    pool: MachinePool
    alone: int
    groups: tuple[Group, ...]
    score: float
    pipelines_bound: int
    score_bound: float


def search(capacities: Sequence[Capacity], layers: int, aim: Objective) -> Found:
    """Maximise Z(k). Each machine that can host the whole model is a pipeline: alone it serves as many as with others.

    Numbers of pipelines are tried from the one that could score best, each with a bound on its score, until no other
    could beat the best found. Where the packing leaves a gap to the bound the exact programme is run if it can pay.
    """
    pool = pool_of(capacities, layers)
    alone = sum(1 for capacity in capacities if capacity.whole >= layers > 0)
    hopes = _hopes(pool, alone, aim)
    best = _Best(pool, alone, aim)
    order = sorted(range(len(hopes)), key=lambda count: (-hopes[count], count))
    if pool.kinds and len(hopes) > 1:
        _pack(best, hopes, order)
        best.offer(next_fit(pool))
        _improve(best, hopes)
    return Found(pool, alone, tuple(best.groups), best.score, alone + len(hopes) - 1, max(hopes))


def _hopes(pool: MachinePool, alone: int, aim: Objective) -> list[float]:
    """A bound on Z for 0 ... most pipelines beside those alone."""
    bounds = stage_bounds(pool, most_pipelines(pool))
    return [aim.score(alone + count, alone + stages) for count, stages in enumerate(bounds)]


class _Best:
    """The best groups so far."""

    def __init__(self, pool: MachinePool, alone: int, aim: Objective) -> None:
        self.pool, self._alone, self._aim = pool, alone, aim
        self.groups: list[Group] = []
        self.score = aim.score(alone, alone)

    def offer(self, groups: Sequence[Group]) -> None:
        """Take over the groups if they score higher."""
        thin: dict[Group, Group] = {}
        kept = [thin.get(group) or thin.setdefault(group, trimmed(self.pool, group)) for group in groups]
        score = self._aim.score(self._alone + len(kept), self._alone + sum(map(len, kept)))
        if kept and score > self.score:
            self.groups, self.score = kept, score


def _pack(best: _Best, hopes: Sequence[float], order: Sequence[int]) -> None:
    packer = Packer(best.pool)
    tries = 0
    for count in order:
        if hopes[count] <= best.score or tries == PACKINGS:
            return
        if count:
            for tight, even in product((False, True), repeat=2):
                groups = packer.pack(count, even, tight)
                best.offer(groups)
                if len(groups) == count:
                    break
            tries += 1


def _improve(best: _Best, hopes: Sequence[float]) -> None:
    better = [count for count, hope in enumerate(hopes) if count and hope > best.score]
    if not better:
        return
    machines = sum(best.pool.counts)
    states = next((states for most, states in AFFORDABLE if machines <= most), 0)
    frontier = explore(best.pool, better[0], better[-1], states) if states else None
    if frontier is not None:
        for count in better:
            if count in frontier.stages:
                best.offer(rebuild(frontier, best.pool, count))
