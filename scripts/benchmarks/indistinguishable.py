"""Whether a node can tell a member's challenge from a user's order: a classifier over what it sees of both.

Users are a stand-in: lengths of ShareGPT's requests, arrivals of a Poisson process (`pool/trace.py`), sampled plainly.
Members are the real thing: lists of an epoch for fifty nodes, asked when and how their salts say. A logistic regression
over the features, their squares and products learns from half of the orders; of pairs of one challenge and one user's
order in the other half it says which is which. 50 % is chance.

Structure of texts has no published distribution. One stand-in is the 64 prompts that Troth calibrates classes with,
written by hand before there were challenges, one a line, each beside a challenge of its length. The other are prompts
that real users typed: those of the Berkeley Function Calling Leaderboard's live parts, which its package ships
(`pip install --no-deps bfcl-eval`, Apache-2.0). There the classifier learns from one source of users and from some
challenges, and is asked about another source and other challenges: no user's text and no challenge is in both. How
well the two groups of real users are told from each other says how much is the source's and not the writer's.
"""

from __future__ import annotations

import bisect
import importlib.util
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.trace import sharegpt
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
        *_real(),
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


SOURCES = (("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"), ("live_irrelevance",))
"""Parts of the leaderboard whose prompts users typed, in two groups that share no prompt."""
MOST_USERS = 500


def _real() -> list[Figure]:
    """The same against real users, held out by source; nothing where their package is not installed."""
    groups = _real_users()
    if groups is None:
        return []
    sides = [(_beside(texts_, number), _structures(texts_)) for number, texts_ in enumerate(groups)]
    found = [_held_out(sides[one], sides[1 - one]) for one in (0, 1)]
    note = " and ".join(f"{len(one)} prompts" for one in groups) + " that users typed, one group learned from"
    return [
        Figure("pairs told apart by structure, real users", float(np.mean(found)), "%", reach=REACH, note=note),
        Figure("two groups of real users told from each other", _accuracy(sides[0][1], sides[1][1]), "%"),
    ]


def _real_users() -> tuple[list[str], ...] | None:
    found = importlib.util.find_spec("bfcl_eval")
    if found is None or not found.submodule_search_locations:
        return None
    folder, groups, known = Path(found.submodule_search_locations[0]) / "data", list[list[str]](), set[str]()
    for parts in SOURCES:
        told = [_typed(line) for part in parts for line in (folder / f"BFCL_v4_{part}.json").read_text().splitlines()]
        fresh = [text for text in dict.fromkeys(told) if len(text) > 3 and text not in known]
        known.update(fresh)
        random.Random(len(groups)).shuffle(fresh)  # noqa: S311 - a reproducible measurement
        groups.append(fresh[:MOST_USERS])
    return tuple(groups)


def _typed(line: str) -> str:
    turns = json.loads(line)["question"]
    return str(turns[0][-1]["content"]) if turns and turns[0] else ""


def _beside(users: Sequence[str], number: int) -> Features:
    """Challenges of a list of its own, each the nearest in length to one user's prompt."""
    written = sorted(prompts_of(bytes([100 + number]) * 32, 1_024, lambda text: True), key=len)
    chosen = []
    for text in users:
        place = min(bisect.bisect_left(written, len(text), key=len), len(written) - 1)
        chosen.append(written.pop(place))
    return _structures(chosen)


def _structures(texts_: Sequence[str]) -> Features:
    return np.array([_structure(text) for text in texts_])


def _held_out(learned: tuple[Features, Features], asked: tuple[Features, Features]) -> float:
    """Per cent of pairs of one source that a classifier of the other tells apart."""
    score = _fitted(*learned)
    a, b = score(asked[0]), score(asked[1])
    return 100 * float((a[:, None] > b[None, :]).mean() + (a[:, None] == b[None, :]).mean() / 2)


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
