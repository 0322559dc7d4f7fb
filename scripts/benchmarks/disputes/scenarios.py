"""Who plays how: the strategies that are measured on the chain, each in a population of which a share is honest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.disputes.game import (
    PARTIES,
    WATCHED,
    Lottery,
    Policy,
    Seat,
    World,
    inferencer_lottery,
    verifier_lottery,
)
from benchmarks.disputes.rules import Conduct

DISPUTES, NEVER = "disputes", "never disputes"
SEATS = (
    *(Conduct.HONEST, Conduct.ALWAYS_YES, Conduct.ALWAYS_NO),
    *(Conduct.SIDES, Conduct.HOSTILE, Conduct.SILENT),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One strategy of one role; ``conducts`` and ``reviewing`` fix the committees of a scripted scene."""

    name: str
    honest: float
    inferencer_honest: bool
    inferencer_disputes: bool
    policy: Policy = PARTIES
    seat: Conduct | None = None
    seat_disputes: bool = False
    conducts: tuple[Conduct, ...] = ()
    reviewing: tuple[Conduct, ...] = ()

    @property
    def party(self) -> int:
        """The party that is measured."""
        return 0 if self.seat is None else 1

    def lottery(self, reviewers: int) -> Lottery:
        """All that it can be paid, exactly."""
        world = World(self.honest, reviewers, self.policy)
        if self.seat is None:
            return inferencer_lottery(world, honest=self.inferencer_honest, disputing=self.inferencer_disputes)
        seat = Seat(self.seat, self.seat_disputes)
        return verifier_lottery(world, seat, inferencer_honest=self.inferencer_honest)


def scenarios(honest: float) -> list[Scenario]:
    """Four ways to infer, and six to verify an honest inferencer and a cheat; the honest dispute, cheats as named."""
    found = [
        Scenario(_inferencer(true, disputing), honest, true, disputing)
        for true in (True, False)
        for disputing in (True, False)
    ]
    for true in (True, False):
        facing = "an honest inferencer" if true else "a cheat"
        for seat in SEATS:
            name = f"verifier: {seat.value}, facing {facing}"
            found.append(Scenario(name, honest, true, true, PARTIES, seat, seat is Conduct.HONEST))
    return [replace(one, inferencer_disputes=one.inferencer_honest) if one.seat else one for one in found]


def scenes(reviewers: int) -> list[Scenario]:
    """Scripted ends of a dispute; one reviewer in five attacks too."""
    honest, hostile, silent = Conduct.HONEST, Conduct.HOSTILE, Conduct.SILENT
    attackers = reviewers // 5
    reviewing = (honest,) * (reviewers - attackers) + (hostile,) * attackers

    def scene(
        name: str, true: bool, disputing: bool, conducts: tuple[Conduct, ...], policy: Policy = PARTIES
    ) -> Scenario:
        return Scenario(name, 0.8, true, disputing, policy, conducts=conducts, reviewing=reviewing)

    return [
        scene("a cheat that all three verifiers accept; the client disputes", False, False, (hostile,) * 3, WATCHED),
        scene("a cheat that two of three accept; the third disputes", False, False, (honest, hostile, hostile)),
        scene("an honest inferencer that all three reject; it disputes", True, True, (hostile,) * 3),
        scene("an honest inferencer that two of three reject; it disputes", True, True, (honest, hostile, hostile)),
        scene("a cheat that all three reject; it disputes", False, True, (honest,) * 3),
        scene(
            "one yes, one no, one silent, the inferencer honest; nobody has to ask",
            True,
            True,
            (honest, hostile, silent),
        ),
    ]


def _inferencer(honest: bool, disputing: bool) -> str:
    return f"inferencer: {'honest' if honest else 'cheats'}, {DISPUTES if disputing else NEVER}"
