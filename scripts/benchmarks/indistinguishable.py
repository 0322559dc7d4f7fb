"""Whether a node can tell a member's challenge from a user's order: a classifier over what it sees of both.

Users are a stand-in: lengths of ShareGPT's requests, arrivals of a Poisson process (`pool/trace.py`), sampled plainly.
Members are the real thing: lists of an epoch for fifty nodes, asked when and how their salts say. A logistic regression
over the features, their squares and products learns from half of the orders; of pairs of one challenge and one user's
order in the other half it says which is which. 50 % is chance.

Structure of texts has no published distribution. Its stand-in is the 64 prompts that Troth calibrates classes with,
written by hand before there were challenges, one a line, each beside a challenge of its length.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.pool.trace import sharegpt
from troth.committee.challenges import PARTS, Challenge, challenges_of, new_openings
from troth.committee.moments import due_of_attempt
from troth.committee.prompts import TOKEN_CHARACTERS, prompts_of
from troth.node.calibration.prompts import texts

NODES, MEMBERS, PROMPTS, ATTEMPTS, TOKENS, EPOCHS = 50, 7, 4, 4, 2048, 6
"""What troth committee start takes without being told otherwise; epochs that are measured."""
ASKING = 1 - 120 / 1800
PROMPT_PRICE, WRITTEN_PRICE = 0.8, 1.6
"""Of a token; only their ratio matters."""
NEWTON_STEPS, RIDGE, DRAWS = 12, 1e-3, 8
REACH = 52.0

Features = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeenOrder:
    """What a node sees of an order: tokens, the most that is paid, when in the epoch, and how long after the last."""

    prompt: float
    most: float
    phase: float
    gap: float

    @property
    def row(self) -> tuple[float, ...]:
        """Its features."""
        cost = self.prompt * PROMPT_PRICE + self.most * WRITTEN_PRICE
        return math.log(self.prompt), math.log(self.most), math.log(cost), self.phase, math.log(self.gap + 1e-6)


def measure() -> list[Figure]:
    """Per cent of pairs by length, timing and pay, and by structure."""
    challenges, users = _orders()
    plain = _accuracy(_rows(challenges), _rows(users))
    structure = float(np.mean([_accuracy(*_texts(number)) for number in range(DRAWS)]))
    note = f"{len(challenges):,} challenges, {len(users):,} orders of users"
    return [
        Figure("pairs told apart by length, timing and pay", plain, "%", reach=REACH, note=note),
        Figure("pairs told apart by structure", structure, "%", reach=REACH, note="against 64 prompts by hand"),
    ]


def _rows(orders: Sequence[SeenOrder]) -> Features:
    return np.array([one.row for one in orders])


# ---- both sides, as one node sees them


def _orders() -> tuple[list[SeenOrder], list[SeenOrder]]:
    """Orders of some epochs at fifty nodes, in the order in which each node gets them."""
    source = random.Random("arrivals")  # noqa: S311 - a reproducible measurement
    found: tuple[list[SeenOrder], list[SeenOrder]] = ([], [])
    for epoch in range(EPOCHS):
        arrivals = [(moment, True, prompt, most) for moment, prompt, most in _asked()]
        requests = sharegpt(len(arrivals), 1.0, epoch)
        end = requests[-1].arrival
        arrivals += [(one.arrival / end, False, float(one.prompt), float(one.output)) for one in requests]
        last = [0.0] * NODES
        for phase, ours, prompt, most in sorted(arrivals):
            node = source.randrange(NODES)
            found[0 if ours else 1].append(SeenOrder(prompt, most, phase, phase - last[node]))
            last[node] = phase
    return found


def _asked() -> list[tuple[float, float, float]]:
    """When, with how many tokens and for how many, members ask in one epoch."""
    known: set[str] = set()
    openings = new_openings(PARTS * PROMPTS * NODES, lambda text: text not in known)
    asked = [_seen(one, one.moment * ASKING) for one in challenges_of(openings, range(len(openings)), TOKENS)]
    own = new_openings(MEMBERS * ATTEMPTS, lambda text: text not in known)
    asked += [_seen(one, due_of_attempt(one.moment, ASKING)) for one in challenges_of(own, range(len(own)), TOKENS)]
    return asked


def _seen(challenge: Challenge, phase: float) -> tuple[float, float, float]:
    return phase, max(1.0, len(challenge.prompt) / TOKEN_CHARACTERS), float(challenge.choices.max_tokens)


# ---- texts


def _texts(number: int) -> tuple[Features, Features]:
    """Structure of the prompts that were written by hand, and of the challenges nearest to them in length."""
    by_hand = texts()
    written = list(prompts_of(bytes([number]) * 32, 600, lambda text: True))
    chosen = []
    for text in by_hand:
        nearest = min(written, key=lambda one: abs(len(one) - len(text)))
        written.remove(nearest)
        chosen.append(nearest)
    return np.array([_structure(text) for text in chosen]), np.array([_structure(text) for text in by_hand])


def _structure(text: str) -> tuple[float, ...]:
    words = text.split()
    shares: Sequence[Callable[[str], bool]] = (str.isdigit, str.isupper, lambda one: one in ",;:.", str.isspace)
    counted = [sum(map(share, text)) / len(text) for share in shares]
    return (*counted, len(text) / len(words), float(text.rstrip().endswith("?")))


# ---- telling them apart


def _accuracy(ours: Features, theirs: Features) -> float:
    """Per cent of pairs in which the challenge is the one that a classifier finds more likely to be one.

    It learns from one half and is asked about the other, both ways round.
    """
    halves = []
    for number in range(2):
        learned = _fitted(ours[number::2], theirs[number::2])
        a, b = learned(ours[1 - number :: 2]), learned(theirs[1 - number :: 2])
        above, level = (a[:, None] > b[None, :]).mean(), (a[:, None] == b[None, :]).mean()
        halves.append(above + level / 2)
    return 100 * float(np.mean(halves))


def _fitted(ours: Features, theirs: Features) -> Callable[[Features], Features]:
    """Logistic regression by Newton's method, over standardised features, their squares and products."""
    rows = np.concatenate([ours, theirs])
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    expanded = _expanded((rows - mean) / spread)
    labels = np.concatenate([np.ones(len(ours)), np.zeros(len(theirs))])
    weights = np.zeros(expanded.shape[1])
    ridge = RIDGE * len(rows) * np.eye(expanded.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(expanded @ weights, -50, 50)))
        slope = expanded.T @ (labels - chances) - ridge @ weights
        curve = (expanded * (chances * (1 - chances))[:, None]).T @ expanded + ridge
        weights += np.linalg.solve(curve, slope)
    return partial(_scores, mean, spread, weights)


def _scores(mean: Features, spread: Features, weights: Features, rows: Features) -> Features:
    return np.asarray(_expanded((rows - mean) / spread) @ weights)


def _expanded(rows: Features) -> Features:
    first, second = np.triu_indices(rows.shape[1])
    return np.concatenate([np.ones((len(rows), 1)), rows, rows[:, first] * rows[:, second]], axis=1)
