"""Expected units of a party among verifiers of whom each is honest with chance r (VeriLLM Appendix E.1), exactly.

The others are one party: they vote together, for a cheat and against an honest inferencer, on one made-up trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.disputes.rules import CLIENT, Conduct, First, Prize, first_round, review_pay
from troth.protocol.settlement import Outcome

VERIFIERS = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """Which of the others dispute an outcome that they would profit from overturning."""

    inferencer: bool = False
    verifier: bool = False
    client: bool = False
    cheat: bool = False
    hostile: bool = False


NOBODY = Policy()
INFERENCERS = Policy(inferencer=True)
"""What the node does unless told otherwise: it disputes a rejection of its own work, and nothing else."""
PARTIES = Policy(inferencer=True, verifier=True)
WATCHED = Policy(inferencer=True, verifier=True, client=True)
EVERYBODY = Policy(inferencer=True, verifier=True, client=True, cheat=True, hostile=True)


@dataclass(frozen=True, slots=True)
class World:
    """Honest share r, committee m' of a review, who disputes, and the rule of its pay."""

    honest: float
    reviewers: int
    policy: Policy = PARTIES
    prize: Prize = Prize.BUILT
    verifiers: int = VERIFIERS


@dataclass(frozen=True, slots=True)
class Seat:
    """Verifier 0's own way of voting, and whether it disputes where that could pay it."""

    conduct: Conduct
    disputes: bool


@lru_cache(maxsize=4096)
def chances(total: int, probability: float) -> tuple[float, ...]:
    """Binomial probabilities of 0 to ``total``."""
    if probability in (0.0, 1.0):
        return tuple(float(count == total * probability) for count in range(total + 1))
    logs = (
        math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
        + count * math.log(probability) + (total - count) * math.log1p(-probability)
        for count in range(total + 1)
    )  # fmt: skip
    return tuple(math.exp(one) for one in logs)


def review_right(world: World) -> float:
    """Chance that a review says the truth."""
    return math.fsum(chances(world.reviewers, world.honest)[world.reviewers // 2 + 1 :])


def verdict(inferencer_honest: bool, honest: int, reviewers: int) -> tuple[Outcome, int]:
    """A review's outcome and its cluster if ``honest`` of the reviewers are."""
    right = honest > reviewers // 2
    outcome = Outcome.ACCEPTED if right == inferencer_honest else Outcome.REJECTED
    return outcome, honest if right else reviewers - honest


def who_disputes(first: First, inferencer_disputes: bool, verifiers: Iterable[bool], client_would: bool) -> int | None:
    """The party that disputes a decided round: who would profit and does, the inferencer before the verifiers."""
    if not first.disputable or first.outcome is Outcome.INDETERMINATE:
        return None
    rejected = first.outcome is Outcome.REJECTED
    if rejected and inferencer_disputes:
        return 0
    right = first.right(Outcome.ACCEPTED if rejected else Outcome.REJECTED)
    for index, disputes in enumerate(verifiers):
        if disputes and index in right:
            return 1 + index
    return CLIENT if client_would and not rejected else None


def disputes(conduct: Conduct, policy: Policy) -> bool:
    """Whether a verifier of the population disputes."""
    return policy.verifier if conduct is Conduct.HONEST else policy.hostile


Lottery = list[tuple[float, float]]
"""Chances, and the units that come with each."""


def mean(lottery: Lottery) -> float:
    """Expected units."""
    return math.fsum(chance * units for chance, units in lottery)


def deviation(lottery: Lottery) -> float:
    """Standard deviation in units."""
    centre = mean(lottery)
    return math.sqrt(math.fsum(chance * (units - centre) ** 2 for chance, units in lottery))


def inferencer_lottery(world: World, *, honest: bool, disputing: bool) -> Lottery:
    """All that can come of inferring."""
    found = []
    for chance, conducts in _drawn(world, ()):
        flags = tuple(disputes(one, world.policy) for one in conducts)
        found += _weighted(chance, _of_votes(world, 0, honest, conducts, disputing, flags))
    return found


def verifier_lottery(world: World, seat: Seat, *, inferencer_honest: bool) -> Lottery:
    """All that can come of verifying in the first round."""
    inferencer_disputes = world.policy.inferencer if inferencer_honest else world.policy.cheat
    found = []
    for chance, conducts in _drawn(world, (seat.conduct,)):
        flags = (seat.disputes, *(disputes(one, world.policy) for one in conducts[1:]))
        found += _weighted(chance, _of_votes(world, 1, inferencer_honest, conducts, inferencer_disputes, flags))
    return found


@lru_cache(maxsize=1 << 16)
def inferencer_pay(world: World, *, honest: bool, disputing: bool) -> float:
    """Expected units of an inferencer."""
    return mean(inferencer_lottery(world, honest=honest, disputing=disputing))


@lru_cache(maxsize=1 << 16)
def verifier_pay(world: World, seat: Seat, *, inferencer_honest: bool) -> float:
    """Expected units of a verifier in the first round."""
    return mean(verifier_lottery(world, seat, inferencer_honest=inferencer_honest))


def review_lottery(world: World, first: First, disputer: int | None, party: int, inferencer_honest: bool) -> Lottery:
    """All that a review can add to a party's units."""
    found = []
    for honest, chance in enumerate(chances(world.reviewers, world.honest)):
        second, cluster = verdict(inferencer_honest, honest, world.reviewers)
        pay, client = review_pay(first, second, cluster, disputer, world.prize)
        found.append((chance, client if party == CLIENT else pay[party]))
    return found


def _drawn(world: World, fixed: tuple[Conduct, ...]) -> Iterator[tuple[float, tuple[Conduct, ...]]]:
    others = world.verifiers - len(fixed)
    for honest, chance in enumerate(chances(others, world.honest)):
        yield chance, (*fixed, *(Conduct.HONEST,) * honest, *(Conduct.HOSTILE,) * (others - honest))


def _weighted(chance: float, lottery: Lottery) -> Lottery:
    return [(chance * one, units) for one, units in lottery]


def _of_votes(  # noqa: PLR0917 - one value each of a game's six dimensions
    world: World,
    party: int,
    inferencer_honest: bool,
    conducts: tuple[Conduct, ...],
    inferencer_disputes: bool,
    flags: tuple[bool, ...],
) -> Lottery:
    first = first_round(inferencer_honest, conducts)
    paid = float(first.pay[party])
    client_would = world.policy.client and not inferencer_honest
    disputer = who_disputes(first, inferencer_disputes, flags, client_would)
    if disputer is None and first.outcome is not Outcome.INDETERMINATE:
        return [(1.0, paid)]
    added = review_lottery(world, first, disputer, party, inferencer_honest)
    return [(chance, paid + units) for chance, units in added]
