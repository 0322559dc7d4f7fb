"""The bounded search of phase 1: one pipeline after the other, each by the best group for what is left."""

from __future__ import annotations

from collections.abc import Sequence

from troth.routing.placement.covering import Group, Sums
from troth.routing.placement.pool import MachinePool, holds


class Packer:
    """Packs one pool for several numbers of pipelines; the tables of sums are shared among them."""

    def __init__(self, pool: MachinePool) -> None:
        self._pool = pool
        self._useful = [-(-pool.most // kind.inner) for kind in pool.kinds]
        self._tables: dict[tuple[int, ...], Sums] = {}

    def pack(self, pipelines: int, even: bool = False, tight: bool = False) -> list[Group]:
        """Up to so many disjoint groups that each hold the model.

        The largest machine left leads each. While layers are to spare, every pipeline may waste its part of them to
        have fewer stages; a `tight` packing wastes as little as it can. Of equally good groups the one with the largest
        machines is taken, or if `even` the one most like what is left. None of these is best on all pools.
        """
        pool, counts, groups = self._pool, list(self._pool.counts), list[Group]()
        total, leader = pool.total, 0
        while len(groups) < pipelines:
            while leader < len(counts) and not counts[leader]:
                leader += 1
            if leader == len(counts):
                break
            left = pipelines - len(groups)
            spare = 0 if tight else max(0, min(total // left - pool.least, pool.most))
            group = self._group(counts, leader, spare, even)
            if group is None:
                break
            times = min(left, *(counts[place] // group.count(place) for place in set(group)))
            for place in group:
                counts[place] -= times
                total -= times * pool.kinds[place].inner
            groups += [group] * times
        return groups

    def _group(self, counts: list[int], leader: int, spare: int, even: bool) -> Group | None:
        counts[leader] -= 1
        useful = tuple(min(count, most) for count, most in zip(counts, self._useful, strict=True))
        sums = self._tables.get(useful)
        if sums is None:
            sums = self._tables[useful] = Sums(self._pool, useful)
        group = sums.closing(counts, leader, spare, even)
        counts[leader] += 1
        return group


def next_fit(pool: MachinePool) -> list[Group]:
    """The fallback: fill a pipeline with the largest machines left until it holds the model, then the next.

    Each is closed by its last machine, so it takes less than `most` plus the largest capacity; hence at least
    (total - most) / (most + largest) pipelines where every machine can be an end: half of the best (Assmann, Johnson,
    Kleitman and Leung, On a dual version of the one-dimensional bin packing problem, 1984).
    """
    groups: list[Group] = []
    open_group: list[int] = []
    held = 0
    for place, (kind, count) in enumerate(zip(pool.kinds, pool.counts, strict=True)):
        for _ in range(count):
            open_group.append(place)
            held += kind.inner
            if held >= pool.least and holds([pool.kinds[member] for member in open_group], pool.layers):
                groups.append(tuple(open_group))
                open_group, held = [], 0
    return groups


def trimmed(pool: MachinePool, group: Sequence[int]) -> Group:
    """The group without machines that it does not need, smallest first."""
    kept = list(group)
    for place in sorted(set(group), reverse=True):
        while place in kept:
            fewer = kept.copy()
            fewer.remove(place)
            if not holds([pool.kinds[member] for member in fewer], pool.layers):
                break
            kept = fewer
    return tuple(kept)
