"""The paper's example numbers (VeriLLM Appendix E.3), exactly: +6 for who is right, -2 for who is wrong, 8 to dispute.

A failed dispute costs 10 in all, the reviewers get 6 each for being in the cluster, and only the inferencer has pay
for a dispute. Who pays the reviewers the paper does not say; the only money that it names is what was lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.disputes.game import VERIFIERS, chances
from troth.protocol.settlement import BOND, PENALTY, REWARD

FAILED = BOND + PENALTY


@dataclass(frozen=True, slots=True)
class Example:
    """The example at an honest share r with a second committee of m'."""

    honest: float
    reviewers: int

    @property
    def first_right(self) -> float:
        """Chance that the first committee says the truth."""
        return math.fsum(chances(VERIFIERS, self.honest)[VERIFIERS // 2 + 1 :])

    @property
    def second_right(self) -> float:
        """Chance that the second one does."""
        return math.fsum(chances(self.reviewers, self.honest)[self.reviewers // 2 + 1 :])

    def inferencer(self, *, honest: bool, disputing: bool) -> float:
        """Expected units of an inferencer."""
        accepted = self.first_right if honest else 1 - self.first_right
        overturned = self.second_right if honest else 1 - self.second_right
        rejected = overturned * REWARD - (1 - overturned) * FAILED if disputing else -PENALTY
        return accepted * REWARD + (1 - accepted) * rejected

    @property
    def lead(self) -> float:
        """Units by which the best honest inferencer is ahead of the best cheat."""
        honest = max(self.inferencer(honest=True, disputing=choice) for choice in (True, False))
        return honest - max(self.inferencer(honest=False, disputing=choice) for choice in (True, False))

    def gain(self, *, honest: bool) -> float:
        """Units that a dispute adds to a rejected inferencer's expectation."""
        overturned = self.second_right if honest else 1 - self.second_right
        return overturned * REWARD - (1 - overturned) * FAILED + PENALTY

    @property
    def verifier_lead(self) -> float:
        """Units by which an honest verifier, paid by its own round, is ahead of one that is never in the cluster."""
        wrong = chances(VERIFIERS - 1, self.honest)[0]
        return (1 - wrong) * REWARD - wrong * PENALTY + PENALTY

    @property
    def committee_bill(self) -> float:
        """Units that a failed dispute of a cheat owes its reviewers: 6 for each of a cluster that is right."""
        weights = chances(self.reviewers, self.honest)
        quorum = self.reviewers // 2 + 1
        expected = math.fsum(count * weights[count] for count in range(quorum, self.reviewers + 1))
        return REWARD * expected / self.second_right

    @property
    def shortfall(self) -> float:
        """What of that the 10 units do not pay."""
        return max(0.0, self.committee_bill - FAILED)

    @property
    def accepted_cheats(self) -> float:
        """Share of cheats that pass the first round and that nobody is paid to dispute."""
        return 1 - self.first_right
