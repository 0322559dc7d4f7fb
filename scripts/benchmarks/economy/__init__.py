"""Does cheating lose? Coalitions play the market's real rules, with the parameters that ship.

``measure`` is what ``scripts/bench economy`` prints. Every row is the coalition's best in a grid of honest shares from
60 to 95 % and gas from 0.01 to 50 gwei, as an exact sum over committees, beside the same played with real draws from a
fixed seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.economy.table import figures, run
from benchmarks.economy.world import demo_world, main_world
from benchmarks.figures import Figure

SEED = 12


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All rows; ``--demo`` for the small parameters, ``--plays 2`` for twice as many plays."""
    parser = argparse.ArgumentParser(prog="scripts/bench economy", description=__doc__)
    parser.add_argument("--demo", action="store_true", help="the small parameters of demos, at their own honest share")
    parser.add_argument("--plays", type=float, default=1.0, help="times the usual number of plays")
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args(options)
    return figures(run(demo_world() if chosen.demo else main_world(), chosen.seed, chosen.plays), chosen.seed)
