"""Evidence against one node, gathered task by task: a test that may be looked at after every task.

A task's finding is a number from 0 to 1. Whatever was asked and found before, an honest node's is ``honest`` on average
at most. Evidence is the wealth of someone who bets at fair odds that it is more (Shafer 2021): a task multiplies the
capital by 1 - s + s x finding / honest, with the stake s. Against an honest node wealth does not grow on average, so
that it ever reaches 1 / ERROR has a chance of ERROR at most (Ville 1939), however often one looks and whoever chooses
the prompts. No size of sample is fixed beforehand.

A node may begin to cheat at any task. A share of the first capital therefore enters the game with every task: with
task t, 1 / (2 t (t + 1)), with the first one half more. These shares sum up to 1, so the bound stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidField

ERROR = 1e-6
"""Chance that an honest node is ever found out, over all looks at one test: what a verifier may say wrong of one node
in one class."""
STAKES = (0.01, 0.05, 0.2, 0.6)
"""Shares of the capital that are bet, with a quarter of it each: small ones find what cheats seldom, large ones decide
soon."""
MOST = 10 / ERROR
"""Capital is capped here. Whoever was found out and has changed is acquitted again by as much honest work."""

Capital = TypeVar("Capital", float, NDArray[np.float64])


def entering(task: int) -> float:
    """The share of the first capital that enters the game with a task, counted from 1."""
    return 1 / (2 * task * (task + 1)) + (0.5 if task == 1 else 0.0)


def next_capital(
    capital: Capital, finding: Capital, *, task: int, honest: float, stake: float, most: float = MOST
) -> Capital:
    """The capital of one stake after a task; arrays are many nodes at once."""
    grown = (capital + entering(task)) * (1 - stake + stake * finding / honest)
    return min(grown, most) if isinstance(grown, float) else np.minimum(grown, most)


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """How many ``tasks`` were found on, and the ``capital`` of every stake after them."""

    tasks: int = 0
    capital: tuple[float, ...] = (0.0,) * len(STAKES)

    @property
    def wealth(self) -> float:
        """Evidence that the node is not honest, 1 before anything was seen: its inverse bounds an honest one's chance
        to be suspected as much."""
        waiting = 1 / (2 * (self.tasks + 1)) if self.tasks else 1.0
        return sum(self.capital) / len(STAKES) + waiting

    @property
    def accepted(self) -> bool:
        """Whether an honest node may well look like this."""
        return self.wealth < 1 / ERROR

    def after(self, finding: float, honest: float) -> NodeEvidence:
        """The evidence with one more task; raises InvalidField unless 0 <= finding <= 1 and 0 < honest < 1."""
        if not 0 <= finding <= 1 or not 0 < honest < 1:
            raise InvalidField("A finding is from 0 to 1, an honest mean between", (finding, honest), "Check the rule.")
        task = self.tasks + 1
        capital = tuple(
            next_capital(one, finding, task=task, honest=honest, stake=stake)
            for one, stake in zip(self.capital, STAKES, strict=True)
        )
        return NodeEvidence(task, capital)


NOTHING = NodeEvidence()
BEYOND = 1e300
"""Wealth that is counted no further."""


def largest_wealth(findings: Sequence[float], honest: float) -> float:
    """The largest wealth after any of so many tasks, without the cap: that it is ever so large bounds the chance, too.

    Raises InvalidField as `NodeEvidence.after`.
    """
    capital, largest = [0.0] * len(STAKES), 1.0
    for task, finding in enumerate(findings, start=1):
        if not 0 <= finding <= 1 or not 0 < honest < 1:
            raise InvalidField("A finding is from 0 to 1, an honest mean between", (finding, honest), "Check the rule.")
        capital = [
            next_capital(one, finding, task=task, honest=honest, stake=stake, most=BEYOND)
            for one, stake in zip(capital, STAKES, strict=True)
        ]
        largest = max(largest, sum(capital) / len(STAKES) + 1 / (2 * (task + 1)))
    return largest
