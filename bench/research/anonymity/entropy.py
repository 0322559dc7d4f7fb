"""Normalised entropy of the source (PlanetServe section 4.1, Figure 8; Appendix A5), in 10,000 nodes.

Two adversaries. A5's gives each predecessor of a chain of consecutive bad relays the chance 1 / (L + 1 − f L) of being
the source, L being all relays of the message's paths, and shares the rest among the other honest nodes (GenTorrent's
Appendix A4; PlanetServe prints that line without its factor, so its chances would not add up to one). The other one
knows the rules: paths have three relays, the last one knows that it is the last, and it reckons by Bayes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from research.anonymity.lines import Line, Numbers, Point

NODES = 10_000
FRACTIONS = np.linspace(0, 0.10, 11)
RELAYS = 3
PATHS = 4
"""Ours: all n = 4 paths carry a clove. The paper's A5 counts k = 3 of them."""
PAPER = (
    Point("PlanetServe, as printed", 0.05, 0.965),
    Point("onion, as printed", 0.05, 0.954),
    Point("garlic cast, as printed", 0.05, 0.903),
)
TRIALS = 40_000
Bad = NDArray[np.bool_]


def draw(f: float, paths: int, relays: int, trials: int, generator: np.random.Generator) -> Bad:
    """Which relays are bad: trials × paths × relays."""
    return generator.random((trials, paths, relays)) < f


def predecessors(bad: Bad) -> NDArray[np.int64]:
    """How many different nodes stand before a chain of bad relays; the source, on many paths, is one node."""
    starts = bad[:, :, 1:] & ~bad[:, :, :-1]
    return bad[:, :, 0].any(axis=1).astype(np.int64) + starts.sum(axis=(1, 2))


def entropy_of(suspects: Numbers, chance: float | Numbers, honest: float) -> Numbers:
    """Entropy over log2 N when each suspect has `chance` and the other honest nodes share the rest."""
    chance = np.minimum(chance, 1 / np.maximum(suspects, 1))
    rest = 1 - suspects * chance
    with np.errstate(divide="ignore", invalid="ignore"):
        those = np.where(suspects > 0, -suspects * chance * np.log2(chance), 0.0)
        others = np.where(rest > 1e-12, -rest * np.log2(rest / (honest - suspects)), 0.0)
    return (those + others) / np.log2(NODES)


def appendix_a5(
    f: float, paths: int, relays: int, generator: np.random.Generator, *, linked: bool = False, trials: int = TRIALS
) -> float:
    """Mean normalised entropy against A5's adversary.

    Args:
        f: share of bad nodes.
        paths: that carry the message.
        relays: of one path.
        generator: of the draws.
        linked: all cloves show one id, as garlic cast's do, so each path's chain is guessed over that path alone.
        trials: messages.
    """
    suspects = predecessors(draw(f, paths, relays, trials, generator)).astype(np.float64)
    length = relays if linked else paths * relays
    return float(entropy_of(suspects, 1 / (length + 1 - f * length), (1 - f) * NODES).mean())


def bayes(f: float, paths: int, generator: np.random.Generator, *, linked: bool, trials: int = TRIALS) -> float:
    """Mean normalised entropy against the adversary who knows the rules, at three relays.

    A first relay is certain of the source if a bad second or third one tells it its place. Alone it may as well be the
    second. m such suspects, linked, have a chance of 1 / (m + 1) each; one that is seen on two paths is the source, for
    paths share no relay. Unlinked, it takes the path that tells most.
    """
    bad = draw(f, paths, 3, trials, generator)
    first, second, third = (bad[:, :, place] for place in range(3))
    certain = (first & (second | third)).any(axis=1)
    alone_first, alone_second = first & ~second & ~third, second & ~first & ~third
    seen_on = alone_first.sum(axis=1)
    suspects = (np.minimum(seen_on, 1) + alone_second.sum(axis=1)).astype(np.float64)
    if linked:
        certain |= seen_on > 1
    else:
        suspects = np.minimum(suspects, 1)
    value = entropy_of(suspects, 1 / (suspects + 1), (1 - f) * NODES)
    return float(np.where(certain, 0.0, value).mean())


def lines(generator: np.random.Generator, trials: int = TRIALS) -> list[Line]:
    """Every system at three relays a path, over f."""

    def over_f(name: str, value: object, *, paper: bool = False) -> Line:
        return Line(name, FRACTIONS, np.array([value(f) for f in FRACTIONS]), paper)  # type: ignore[operator]

    def formula(paths: int, *, linked: bool = False) -> object:
        return lambda f: appendix_a5(f, paths, RELAYS, generator, linked=linked, trials=trials)

    return [
        over_f("ours by A5, 4 paths", formula(PATHS)),
        over_f("PlanetServe by A5, 3 paths", formula(3), paper=True),
        over_f("onion by A5, 1 path", formula(1), paper=True),
        over_f("garlic cast by A5, 3 linked paths", formula(3, linked=True), paper=True),
        over_f("onion by Bayes, 1 path", lambda f: bayes(f, 1, generator, linked=False, trials=trials), paper=True),
        over_f("ours by Bayes, 4 paths", lambda f: bayes(f, PATHS, generator, linked=False, trials=trials)),
        over_f(
            "ours by Bayes, 4 paths linked by timing",
            lambda f: bayes(f, PATHS, generator, linked=True, trials=trials),
        ),
    ]
