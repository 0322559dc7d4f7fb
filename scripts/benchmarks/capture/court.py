"""The market's chances, by the integers that its contracts compute them with."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.market import economy
from troth.protocol.market.prices import BASIS_POINTS, MILLION

FEE = 10**12
"""Units; large, so that a penalty in fees is not rounded."""


@dataclass(frozen=True, slots=True)
class Court:
    """``malicious`` per cent of all seats act as one; the others are honest."""

    malicious: int
    verifiers: int
    reviewers: int

    @property
    def found(self) -> float:
        """Chance that most verifiers of a check are honest."""
        return economy.at_least(self.verifiers, self.verifiers // 2 + 1, self._honest) / economy.ONE

    @property
    def convicts(self) -> float:
        """Chance that two thirds of the reviewers are honest, who then convict a cheat."""
        return economy.conviction(self._honest, self.reviewers) / economy.ONE

    @property
    def convicts_honest(self) -> float:
        """Chance that two thirds of the reviewers are malicious, who then convict whom they like."""
        return economy.conviction(BASIS_POINTS - self._honest, self.reviewers) / economy.ONE

    def caught(self, checked: int) -> float:
        """Chance that a false result costs its maker, where ``checked`` per cent of answers are drawn."""
        return self._probability(checked) / economy.ONE

    def penalty(self, checked: int) -> float:
        """The least penalty that deters, in fees of the class's cap; a case's gas may ask for more."""
        return max(economy.least_penalty(FEE, self._probability(checked)) / FEE, economy.FEES_COVERED)

    @property
    def _honest(self) -> int:
        return BASIS_POINTS * (100 - self.malicious) // 100

    def _probability(self, checked: int) -> int:
        return economy.detection(MILLION * checked // 100, self._honest, self.verifiers, self.reviewers)
