"""Survival and delivery while nodes leave (section 5.2, Figure 13): 3,119 nodes, 200 leave each minute.

Survival: k of the n paths that a session began with, or that it repaired since, stand at minute t. Delivery: a request
sent at minute t, and its answer, pass whole: k paths stand from t until the answer is there. Nodes that leave are
replaced, so that the network's size stays. By default who leaves is drawn evenly, so lives are exponential with a mean
of 15.6 minutes; `LongLived` has the long tail that measured networks have.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma

import numpy as np

from research.anonymity.lines import Line, Numbers, Point
from research.anonymity.threshold import at_least

NODES, LEAVING = 3119, 200
RATE = LEAVING / NODES
"""Chance a minute that one node leaves."""
RELAYS = 3
MINUTES = np.linspace(0, 30, 31)
ROUND = 20 / 60
"""Minutes from a request to the end of its answer."""
REPAIR = 5 / 60
"""Minutes until a dead path is noticed and another takes its place: mostly missed keep-alives."""
THRESHOLDS = ((4, 3), (6, 4), (8, 4))
PAPER = (Point("GenTorrent (4, 3), unrepaired: 'above 80 %'", 15, 0.80),)
TRIALS = 20_000
CYCLES = 40


def standing(minute: Numbers, generator: np.random.Generator, n: int, trials: int, repair: float | None) -> Numbers:
    """How many of n paths stand at each minute and for a round after: trials × minutes × 2.

    A path lives until the first of its relays leaves; with repair another one takes over after `repair` minutes.
    """
    cycles = 1 if repair is None else CYCLES
    lives = generator.exponential(1 / RATE, (trials, n, cycles, RELAYS)).min(axis=3)
    ends = np.cumsum(lives + (repair or 0.0), axis=2) - (repair or 0.0)
    begins = ends - lives
    counts = np.empty((trials, len(minute), 2))
    for at, t in enumerate(minute):
        began = begins <= t
        counts[:, at, 0] = (began & (ends > t)).any(axis=2).sum(axis=1)
        counts[:, at, 1] = (began & (ends > t + ROUND)).any(axis=2).sum(axis=1)
    return counts


def simulated(
    n: int, k: int, generator: np.random.Generator, *, repaired: bool, trials: int = TRIALS
) -> tuple[Numbers, Numbers]:
    """Survival and delivery at MINUTES."""
    counts = standing(MINUTES, generator, n, trials, REPAIR if repaired else None)
    survival, delivery = (counts >= k).mean(axis=0).T
    return survival, delivery


def closed_form(n: int, k: int, minutes: Numbers) -> Numbers:
    """Survival without repair: what `simulated` must give."""
    return at_least(k, n, np.exp(-RELAYS * RATE * minutes))


def rate_for(share: float, n: int, k: int, minutes: float) -> float:
    """How fast one relay may leave, a minute, so that `share` of unrepaired sessions survive so long; by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        survives = float(at_least(k, n, np.array(np.exp(-RELAYS * middle * minutes))))
        low, high = (middle, high) if survives > share else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class LongLived:
    """Weibull lives of shape 0.5, like those of measured networks, with the mean that 200 of 3,119 a minute gives."""

    shape: float = 0.5

    def stays(self, minutes: Numbers, age: float) -> Numbers:
        """Chance that a node of `age` minutes stays so much longer."""
        scale = 1 / RATE / gamma(1 + 1 / self.shape)
        return np.asarray(np.exp((age / scale) ** self.shape - ((age + minutes) / scale) ** self.shape))

    def survival(self, n: int, k: int, minutes: Numbers, age: float) -> Numbers:
        """Survival without repair if relays are chosen at this age."""
        return at_least(k, n, self.stays(minutes, age) ** RELAYS)


def lines(generator: np.random.Generator, trials: int = TRIALS) -> tuple[list[Line], list[Line]]:
    """Survival and delivery, over minutes."""
    onion = simulated(1, 1, generator, repaired=False, trials=trials)
    survival = [Line("one onion path", MINUTES, onion[0], paper=True)]
    delivery = [Line("one onion path", MINUTES, onion[1], paper=True)]
    for repaired in (False, True):
        for n, k in THRESHOLDS:
            name = f"({n}, {k})" + (", repaired" if repaired else "")
            survives, delivers = simulated(n, k, generator, repaired=repaired, trials=trials)
            paper = (n, k) == (4, 3) and not repaired
            survival.append(Line(name, MINUTES, survives, paper))
            delivery.append(Line(name, MINUTES, delivers, paper))
    old = LongLived().survival(4, 3, MINUTES, age=24 * 60)
    survival.append(Line("(4, 3), relays a day old, long-tailed lives", MINUTES, old))
    return survival, delivery
