"""One coalition in a group of nodes: what its attacks achieve and earn, summed over draws without replacement."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.disputes.game import NOBODY, PARTIES, WATCHED, Policy, disputes, verdict, who_disputes
from benchmarks.disputes.rules import Conduct, First, first_round, review_pay
from troth.protocol.settlement import PENALTY, REWARD, Outcome

__all__ = ["NOBODY", "PARTIES", "WATCHED", "Attack"]

VERIFIERS = 3


def drawn(nodes: int, malicious: int, committee: int) -> Iterator[tuple[int, float]]:
    """How many of a committee are malicious, with its chance (hypergeometric)."""
    ways = math.comb(nodes, committee)
    for taken in range(max(0, committee - nodes + malicious), min(committee, malicious) + 1):
        yield taken, math.comb(malicious, taken) * math.comb(nodes - malicious, committee - taken) / ways


@dataclass(frozen=True, slots=True)
class Attack:
    """``malicious`` of ``nodes`` act as one; the others are honest and dispute by the policy."""

    nodes: int
    malicious: int
    reviewers: int
    policy: Policy

    @property
    def cheat_stands(self) -> float:
        """Chance that a cheating inferencer's task ends accepted."""
        return math.fsum(chance for chance, outcome, _ in self._ends(False) if outcome is Outcome.ACCEPTED)

    @property
    def rejection_stands(self) -> float:
        """Chance that an honest inferencer's task ends rejected."""
        return math.fsum(chance for chance, outcome, _ in self._ends(True) if outcome is Outcome.REJECTED)

    @property
    def cheat_units(self) -> float:
        """Expected units of the coalition from a task that one of it infers and cheats in."""
        return math.fsum(chance * units for chance, _, units in self._ends(False))

    @property
    def rejection_units(self) -> float:
        """The same from voting against an honest inferencer."""
        return math.fsum(chance * units for chance, _, units in self._ends(True))

    def _ends(self, honest: bool) -> Iterator[tuple[float, Outcome, float]]:
        """Chance, outcome and the coalition's units; the inferencer is drawn first."""
        malicious = self.malicious if honest else self.malicious - 1
        for taken, chance in drawn(self.nodes - 1, malicious, VERIFIERS):
            conducts = (Conduct.HONEST,) * (VERIFIERS - taken) + (Conduct.HOSTILE,) * taken
            first = first_round(honest, conducts)
            ours = (*(() if honest else (0,)), *range(1 + VERIFIERS - taken, 1 + VERIFIERS))
            earned = math.fsum(first.pay[party] for party in ours)
            flags = [disputes(conduct, self.policy) for conduct in conducts]
            by_inferencer = self.policy.inferencer and honest
            disputer = who_disputes(first, by_inferencer, flags, self.policy.client and not honest)
            if disputer is None:
                yield chance, first.outcome, earned
                continue
            for weight, outcome, units in self._reviewed(first, honest, malicious - taken, disputer, ours):
                yield chance * weight, outcome, earned + units

    def _reviewed(
        self, first: First, honest: bool, malicious: int, disputer: int, ours: tuple[int, ...]
    ) -> Iterator[tuple[float, Outcome, float]]:
        for taken, chance in drawn(self.nodes - 1 - VERIFIERS, malicious, self.reviewers):
            second, cluster = verdict(honest, self.reviewers - taken, self.reviewers)
            pay, _ = review_pay(first, second, cluster, disputer)
            won = taken > self.reviewers // 2
            units = math.fsum(pay[party] for party in ours) + taken * (REWARD if won else -PENALTY)
            yield chance, second, units
