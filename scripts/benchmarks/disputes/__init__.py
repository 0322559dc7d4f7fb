"""Is honesty the best reply? The game of VeriLLM Appendix E, computed exactly with the pay of the contract.

Every verifier is honest with chance r. The others vote against the truth, together. Pay in units: 6 for who is
right, -2 for who is wrong, a dispute costs 8 and gives it back on success.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.committees import bound_of_lemma, majority, smallest
from benchmarks.figures import Figure
from troth.node.calibration.intervals import at_most
from troth.protocol.settlement import PENALTY, REWARD

BOND = 8
VERIFIERS = 3
ERROR = 0.01
"""Chance of a wrong second verdict that the second committee is sized for."""
SHARES = (0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)


@dataclass(frozen=True, slots=True)
class Game:
    """One honest share. ``second`` verifiers decide a dispute, 0 where there are none."""

    honest: float
    second: int

    @property
    def first_right(self) -> float:
        """Chance that the first committee is right."""
        return majority(VERIFIERS, self.honest)

    @property
    def second_right(self) -> float:
        """Chance that the second committee is right."""
        return majority(self.second, self.honest) if self.second else 0.0

    def after_rejection(self, overturned: float) -> float:
        """What a rejected inferencer can expect; it disputes if that pays."""
        if not self.second:
            return -PENALTY
        return max(-PENALTY, overturned * REWARD - (1 - overturned) * (BOND + PENALTY))

    @property
    def honest_inferencer(self) -> float:
        """Expected units of who ran the model."""
        return self.first_right * REWARD + (1 - self.first_right) * self.after_rejection(self.second_right)

    @property
    def cheating_inferencer(self) -> float:
        """Expected units of who did not."""
        return (1 - self.first_right) * REWARD + self.first_right * self.after_rejection(1 - self.second_right)

    @property
    def verifier(self) -> float:
        """Expected units of an honest verifier: right if enough of the others are."""
        # Wrong if the others leave it short of a quorum: fewer than half of them are honest.
        wrong = at_most(VERIFIERS // 2 - 1, VERIFIERS - 1, self.honest)
        return (1 - wrong) * REWARD - wrong * PENALTY

    @property
    def shortfall(self) -> float:
        """Units by which a failed dispute does not pay for its committee."""
        return max(0.0, self.second * REWARD - BOND - PENALTY)


def measure() -> list[Figure]:
    """Rows for each honest share."""
    return [figure for honest in SHARES for figure in _of_share(honest)]


def _of_share(honest: float) -> list[Figure]:
    second = smallest(honest, ERROR)
    without, disputed = Game(honest, 0), Game(honest, second)
    name = f"r = {honest:.2f}"
    return [
        Figure(
            f"{name}: honest inferencer's lead, no disputes", _lead(without), "units", note="cheating must save less"
        ),
        Figure(f"{name}: its lead with disputes", _lead(disputed), "units", note="cheating must save less"),
        Figure(f"{name}: honest verifier's lead over a guess", disputed.verifier + PENALTY, "units"),
        Figure(
            f"{name}: second committee for 1 % error",
            *(second, "nodes", bound_of_lemma(honest, ERROR)),
            note="the paper's column is Lemma E.2's bound",
        ),
        Figure(
            f"{name}: what a failed dispute leaves unpaid",
            *(disputed.shortfall, "units"),
            note=f"{second} x {REWARD} for the committee, {BOND} + {PENALTY} from who lost",
        ),
    ]


def _lead(game: Game) -> float:
    return game.honest_inferencer - game.cheating_inferencer
