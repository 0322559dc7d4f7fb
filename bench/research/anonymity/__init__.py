"""Anonymity, confidentiality, survival and delivery, simulated: `scripts/bench anonymity`. README.md says how.

Seeded, so that a run prints the same numbers and writes the same pages under docs/simulations.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.figures import Figure

from research.anonymity import churn, confidentiality, entropy, plots, threshold
from research.anonymity.lines import SEED, Line, Point

PAGES = Path(__file__).resolve().parents[3] / "docs" / "simulations"

NO_LENGTH = "A5 gives the printed onion line at no length"


def measure() -> list[Figure]:
    """The figures at the points that the paper prints; the pages with whole lines are written beside."""
    generator = np.random.default_rng(SEED)
    PAGES.mkdir(parents=True, exist_ok=True)
    return [*_entropy(generator), *_confidentiality(generator), *_churn(generator), *_threshold(generator)]


def _entropy(generator: np.random.Generator) -> list[Figure]:
    lines = entropy.lines(generator)
    _write(
        "entropy.html",
        "Who sent it: normalised entropy",
        "10,000 nodes, three relays a path in every system (PlanetServe section 4.1, Figure 8, Appendix A5).",
        [("share of bad nodes", lines, entropy.PAPER, 1)],
    )
    printed = {"PlanetServe by A5": 0.965, "onion by A5": 0.954, "garlic cast by A5": 0.903, "ours by A5": 0.965}
    figures = [
        Figure(f"entropy, f = 0.05: {line.name}", line.at(0.05), "", paper=printed.get(line.name.split(",")[0]))
        for line in lines
    ]
    longer = entropy.appendix_a5(0.05, 3, 6, generator, linked=True)
    lowest = min(entropy.appendix_a5(0.05, 1, relays, generator) for relays in range(1, 16))
    return [
        *figures,
        Figure("entropy, f = 0.05: garlic cast by A5, 6 relays", longer, "", paper=0.903),
        Figure("entropy, f = 0.05: onion by A5, lowest of 1 to 15 relays", lowest, "", 0.954, note=NO_LENGTH),
    ]


def _confidentiality(generator: np.random.Generator) -> list[Figure]:
    lines = confidentiality.lines()
    _write(
        "confidentiality.html",
        "Who reads it: messages unread by pooled relays",
        "10,000 nodes, (4, 3); the destination reads and is not counted (PlanetServe section 4.2, Figure 9).",
        [("share of bad nodes", lines, confidentiality.PAPER, 1)],
    )
    printed = (1.0, 1.0, 1.0, 0.88, 0.88, 0.73)
    drawn = confidentiality.simulated(0.1, 4, 3, 3, generator)
    layered = confidentiality.simulated(0.1, 4, 3, 3, generator, layered=True)
    hours = confidentiality.brute_force_seconds(0.1, 1000, 4, 3, 3) / 3600
    return [
        *(
            Figure(f"unread, f = 0.1: {line.name}", line.at(0.1), "", paper=value)
            for line, value in zip(lines, printed, strict=True)
        ),
        Figure("… 3 relays, nodes drawn one by one", drawn, "", note="without replacement; must agree with the sum"),
        Figure("… last relays only, nodes drawn one by one", layered, ""),
        Figure(
            "relays at which (4, 3) gives 0.88 / 0.73",
            confidentiality.fitted_relays(0.88),
            "relays",
            note=f"0.73 at {confidentiality.fitted_relays(0.73)}: the paper's figure compares unequal paths",
        ),
        Figure("brute force over 1,000 messages", hours, "h", note="one core, three of some 1,080 cloves at a time"),
    ]


def _churn(generator: np.random.Generator) -> list[Figure]:
    survival, delivery = churn.lines(generator)
    _write(
        "churn.html",
        "What arrives while nodes leave",
        "3,119 nodes, 200 leave each minute, three relays a path (PlanetServe section 5.2, Figure 13). Above survival, "
        "below delivery of a request with its answer within 20 s.",
        [("minutes", survival, churn.PAPER, 3), ("minutes", delivery, (), 3)],
    )
    needed = churn.rate_for(0.80, 4, 3, 15)
    note = f"a relay may then leave at {needed:.2%} a minute; 200 of 3,119 is {churn.RATE:.1%}"
    return [
        *(
            Figure(f"survival at 15 min: {line.name}", line.at(15), "", paper=0.80 if line.name == "(4, 3)" else None)
            for line in survival
        ),
        Figure("GenTorrent's 'above 80 %' at 15 min: holds until", 15 * needed / churn.RATE, "min", note=note),
        *(Figure(f"delivery at 15 min: {line.name}", line.at(15), "") for line in delivery),
    ]


def _threshold(generator: np.random.Generator) -> list[Figure]:
    lines = threshold.lines()
    point = (Point("A4: (4, 3) at 3 %: 'above 95 %'", 0.03, 0.95),)
    _write(
        "threshold.html",
        "P(k of n)",
        "A round succeeds if k of n paths of three relays hold (PlanetServe Appendix A4).",
        [("share of relays that fail in a round", lines, point, 2)],
    )
    figures = [
        Figure(f"P(k of n), 3 % fail: {line.name}", line.at(0.03), "", paper=0.95 if line.name == "(4, 3)" else None)
        for line in lines
    ]
    drawn = threshold.simulated(3, 4, 0.03, generator)
    return [*figures, Figure("… (4, 3), relays drawn one by one", drawn, "")]


def _write(name: str, title: str, text: str, charts: list[tuple[str, list[Line], tuple[Point, ...], int]]) -> None:
    bodies = []
    for x_axis, lines, points, every in charts:
        bodies += [plots.chart(lines, points, x_axis), plots.table(lines, every, x_axis)]
    (PAGES / name).write_text(plots.page(title, text, bodies))
