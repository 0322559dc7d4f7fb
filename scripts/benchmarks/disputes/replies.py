"""Best replies: which way of playing pays most, by how many units, and for whom a dispute pays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.disputes.game import (
    NOBODY,
    Policy,
    Seat,
    World,
    chances,
    inferencer_pay,
    mean,
    review_lottery,
    review_right,
    verdict,
    verifier_pay,
)
from benchmarks.disputes.rules import CLIENT, Conduct, First, first_round, review_pay
from troth.protocol.settlement import PENALTY, REWARD, Outcome

RIVALS = (
    *(Conduct.ALWAYS_YES, Conduct.ALWAYS_NO, Conduct.SIDES),
    *(Conduct.HOSTILE, Conduct.SILENT, Conduct.WITHHOLDS),
)
RANDOM = "random trace, verdict by coin"


@dataclass(frozen=True, slots=True)
class Inferencer:
    """Expected units of the four ways to infer, what a cheat must save to be level, and of serving at all."""

    honest_disputing: float
    honest: float
    cheat: float
    cheat_disputing: float

    @property
    def best_honest(self) -> float:
        """Honest, disputing where that pays."""
        return max(self.honest_disputing, self.honest)

    @property
    def lead(self) -> float:
        """Units by which honesty is the better reply: the saving at which cheating breaks even."""
        return self.best_honest - max(self.cheat, self.cheat_disputing)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Expected units of each way to verify, by its name; inferencers are honest with chance r."""

    honest: float
    rivals: dict[str, float]

    @property
    def rival(self) -> str:
        """The best way that is not honest."""
        return max(self.rivals, key=lambda name: self.rivals[name])

    @property
    def lead(self) -> float:
        """Units by which honesty is the better reply: the cost of verifying at which it breaks even."""
        return self.honest - self.rivals[self.rival]


def inferencer(world: World) -> Inferencer:
    """The inferencer's replies."""
    return Inferencer(
        inferencer_pay(world, honest=True, disputing=True),
        inferencer_pay(world, honest=True, disputing=False),
        inferencer_pay(world, honest=False, disputing=False),
        inferencer_pay(world, honest=False, disputing=True),
    )


def verifier(world: World) -> Verifier:
    """The first-round verifier's replies, where a share r of inferencers is honest."""
    pay = {conduct: _of_both_kinds(world, conduct) for conduct in (Conduct.HONEST, *RIVALS)}
    rivals = {conduct.value: pay[conduct] for conduct in RIVALS}
    rivals[RANDOM] = (pay[Conduct.ALWAYS_YES] + pay[Conduct.ALWAYS_NO]) / 2
    return Verifier(pay[Conduct.HONEST], rivals)


def verifier_against(world: World, conduct: Conduct, *, inferencer_honest: bool) -> float:
    """Expected units of a verifier; it disputes only if that pays, which favours who does not know what is true."""
    choices = (Seat(conduct, True), Seat(conduct, False))
    return max(verifier_pay(world, seat, inferencer_honest=inferencer_honest) for seat in choices)


def reviewer(world: World) -> Verifier:
    """A reviewer's replies: who attacks is in the other camp, who guesses in neither."""
    pay = {conduct: reviewer_pay(world, conduct) for conduct in (Conduct.HONEST, *RIVALS)}
    return Verifier(pay.pop(Conduct.HONEST), {conduct.value: units for conduct, units in pay.items()})


def reviewer_pay(world: World, conduct: Conduct) -> float:
    """Expected units of one reviewer of a disputed task; SIDES meets a cheat here."""
    if conduct is Conduct.SILENT:
        return 0.0
    others, quorum = world.reviewers - 1, world.reviewers // 2 + 1
    camp = {Conduct.HONEST: 0, Conduct.SIDES: 1, Conduct.HOSTILE: 1}.get(conduct)
    total = 0.0
    for honest, chance in enumerate(chances(others, world.honest)):
        camps = [honest, others - honest]
        if camp is not None:
            camps[camp] += 1
        if camp is not None and camps[camp] >= quorum:
            total += chance * REWARD
        elif conduct is Conduct.WITHHOLDS or max(camps) >= quorum:
            total -= chance * PENALTY
    return total


def gain(world: World, first: First, disputer: int, *, right: bool) -> float:
    """Units that disputing adds to a party's expectation; ``right`` says whether truth is on its side."""
    # The truth is the other outcome if the disputer is right, and the outcome that stands if it is not.
    inferencer_honest = (first.outcome is Outcome.REJECTED) == right
    return mean(review_lottery(world, first, disputer, disputer, inferencer_honest))


def inferencer_gain(world: World, *, honest: bool) -> float:
    """Units that disputing adds to a rejected inferencer's expectation, over the clusters that reject it."""
    alone = replace(world, policy=NOBODY)
    rejected = sum(
        chance
        for count, chance in enumerate(chances(world.verifiers, world.honest))
        if (count > world.verifiers // 2) != honest
    )
    never = inferencer_pay(alone, honest=honest, disputing=False)
    return (inferencer_pay(alone, honest=honest, disputing=True) - never) / rejected


def verifier_gain(world: World) -> float:
    """The same for the one honest verifier of an accepted cheat."""
    captured = first_round(False, (Conduct.HONEST, *(Conduct.HOSTILE,) * (world.verifiers - 1)))
    return gain(world, captured, 1, right=True)


def client_gain(world: World) -> float:
    """The same for the client of a cheat that every verifier accepted; without the fee, which comes back on top."""
    captured = first_round(False, (Conduct.HOSTILE,) * world.verifiers)
    return gain(world, captured, CLIENT, right=True) + review_right(world) * REWARD * (2 + world.verifiers)


def where_it_pays(world: World) -> Policy:
    """Everybody disputes exactly where that pays."""
    return Policy(
        inferencer=inferencer_gain(world, honest=True) > 0,
        verifier=verifier_gain(world) > 0,
        client=client_gain(world) > 0,
        cheat=inferencer_gain(world, honest=False) > 0,
        hostile=hostile_gain(world) > 0,
    )


def hostile_gain(world: World) -> float:
    """What one attacker among the verifiers can expect of disputing an honest inference that was accepted."""
    accepted = first_round(True, (Conduct.HOSTILE, *(Conduct.HONEST,) * (world.verifiers - 1)))
    return gain(world, accepted, 1, right=False)


def coalition_gain(world: World) -> float:
    """The same for all attackers together: a review that they win pays theirs among the reviewers."""
    accepted = first_round(True, (Conduct.HOSTILE, *(Conduct.HONEST,) * (world.verifiers - 1)))
    total = 0.0
    for honest, chance in enumerate(chances(world.reviewers, world.honest)):
        second, cluster = verdict(True, honest, world.reviewers)
        pay, _ = review_pay(accepted, second, cluster, 1, world.prize)
        hostile = world.reviewers - honest
        total += chance * (pay[1] + hostile * (REWARD if second is Outcome.REJECTED else -PENALTY))
    return total


def _of_both_kinds(world: World, conduct: Conduct) -> float:
    share = world.honest
    return share * verifier_against(world, conduct, inferencer_honest=True) + (1 - share) * verifier_against(
        world, conduct, inferencer_honest=False
    )
