"""Exact chances of what is drawn: honest seats among verifiers, and among reviewers once the verifiers are excluded.

The court draws nobody who had a part in the leaf, so each honest verifier's owner is missing from it. Owners of one
kind hold the same number of seats, so that a committee's chances follow from how many of them are excluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from benchmarks.economy.world import World


@dataclass(frozen=True, slots=True)
class Population:
    """Honest and other owners that can be drawn, with the seats that each of them holds."""

    honest: int
    honest_seats: int
    others: int
    other_seats: int

    @property
    def share(self) -> float:
        """Honest seats of all."""
        honest = self.honest * self.honest_seats
        return honest / (honest + self.others * self.other_seats)

    def without(self, honest: int, others: int) -> Population:
        """The same without so many owners of each kind."""
        return Population(self.honest - honest, self.honest_seats, self.others - others, self.other_seats)


@dataclass(frozen=True, slots=True)
class Verifying:
    """A draw of verifiers: honest seats among k, who is left to review, and the chance of it."""

    honest: int
    left: Population
    chance: float


def population(world: World) -> Population:
    """The owners of a world's group."""
    kinds: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for seats, honest in world.seats_of_owners:
        kinds[honest][seats] += 1
    assert all(len(sizes) == 1 for sizes in kinds.values()), "owners of one kind hold the same number of seats"
    (honest_seats, honest_owners), (other_seats, other_owners) = (
        next(iter(kinds[kind].items())) for kind in (True, False)
    )
    return Population(honest_owners, honest_seats, other_owners, other_seats)


def binomial(count: int, share: float) -> list[float]:
    """P[Bin(count, share) = i] for each i."""
    return [comb(count, hits) * share**hits * (1 - share) ** (count - hits) for hits in range(count + 1)]


def at_least(count: int, least: int, share: float) -> float:
    """P[Bin(count, share) >= least]."""
    return sum(binomial(count, share)[least:])


@lru_cache(maxsize=4096)
def distinct(draws: int, owners: int) -> tuple[float, ...]:
    """Chance of each number of different owners among ``draws`` seats of ``owners`` equal ones."""
    if draws == 0:
        return (1.0,)
    return tuple(_surjections(draws, number) * comb(owners, number) / owners**draws for number in range(draws + 1))


def _surjections(draws: int, onto: int) -> int:
    return sum((-1) ** left * comb(onto, left) * (onto - left) ** draws for left in range(onto + 1))


def verifying(world: World, *, node_honest: bool) -> Iterator[Verifying]:
    """Every draw of k verifiers of a node's answer; its owner is drawn neither now nor in court."""
    start = population(world).without(node_honest, not node_honest)
    for honest, chance in enumerate(binomial(world.money.verifiers, start.share)):
        others = world.money.verifiers - honest
        for honest_owners, first in enumerate(distinct(honest, start.honest)):
            for other_owners, second in enumerate(distinct(others, start.others)):
                if chance * first * second > 0:
                    yield Verifying(honest, start.without(honest_owners, other_owners), chance * first * second)


def reviewing(world: World, left: Population) -> list[float]:
    """Chance of each number of honest seats among m' reviewers."""
    return binomial(world.money.reviewers, left.share)
