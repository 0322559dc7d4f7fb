"""How often the content of a message stays unread by relays that pool what they have (section 4.2, Figure 9).

The destination reads it in every system and is not counted. "Brute force" is trying which cloves belong together.
"""

from __future__ import annotations

from math import comb

import numpy as np

from research.anonymity.lines import Line, Numbers, Point
from research.anonymity.threshold import at_least

NODES = 10_000
FRACTIONS = np.linspace(0, 0.10, 11)
PAPER = (
    Point("PlanetServe with brute force, as printed", 0.10, 0.88),
    Point("garlic cast with brute force, as printed", 0.10, 0.73),
)
TRIALS = 20_000
TRIAL_SECONDS = 5e-6
"""One trial decoding of a key and its check: three shares, one hash, some microseconds (`scripts/bench overlay`)."""


def unread(f: Numbers, n: int, k: int, relays: int) -> Numbers:
    """The paper's relays see cloves: read as soon as k of n paths have a bad one."""
    return 1 - at_least(k, n, 1 - (1 - f) ** relays)


def unread_layered(f: Numbers, n: int, k: int) -> Numbers:
    """Cells are wrapped in a layer a hop, so that only the last relay of a path sees a clove."""
    return 1 - at_least(k, n, f)


def simulated(
    f: float,
    n: int,
    k: int,
    relays: int,
    generator: np.random.Generator,
    *,
    layered: bool = False,
    trials: int = TRIALS,
) -> float:
    """The same with nodes drawn without replacement: paths of one user share no relay."""
    bad_nodes = round(f * NODES)
    unread_messages = 0
    for _ in range(trials):
        drawn = generator.choice(NODES, n * relays, replace=False, shuffle=True).reshape(n, relays) < bad_nodes
        unread_messages += int((drawn[:, -1] if layered else drawn.any(axis=1)).sum() < k)
    return unread_messages / trials


def brute_force_seconds(f: float, messages: int, n: int, k: int, relays: int) -> float:
    """Seconds of one core to try every k of the cloves that bad relays hold of `messages` under way."""
    held = round(messages * n * (1 - (1 - f) ** relays))
    return comb(held, k) * TRIAL_SECONDS


def fitted_relays(target: float, f: float = 0.10, n: int = 4, k: int = 3) -> int:
    """Relays on a path at which (n, k) gives a figure that the paper prints."""
    return min(range(1, 13), key=lambda relays: abs(float(unread(np.array(f), n, k, relays)) - target))


def lines() -> list[Line]:
    """Share of messages unread, over f."""
    ones = np.ones_like(FRACTIONS)
    return [
        Line("ours, prompt sealed to the destination", FRACTIONS, ones),
        Line("ours, unsealed: only last relays see cloves", FRACTIONS, unread_layered(FRACTIONS, 4, 3)),
        Line("PlanetServe without brute force", FRACTIONS, ones, paper=True),
        Line("PlanetServe with brute force, 3 relays", FRACTIONS, unread(FRACTIONS, 4, 3, 3), paper=True),
        Line("PlanetServe with brute force, 4 relays", FRACTIONS, unread(FRACTIONS, 4, 3, 4), paper=True),
        Line("garlic cast with brute force, 6 relays", FRACTIONS, unread(FRACTIONS, 4, 3, 6), paper=True),
    ]
