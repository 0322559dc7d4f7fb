"""The overlay's costs: `scripts/bench overlay`. A new table is a module with `measure`, and its name below."""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.overlay import cells, circuits, paths, relay, sida

TABLES = (sida, cells, circuits, relay, paths)


def measure() -> list[Figure]:
    """The figures of all tables, in order, in one run."""
    return [figure for table in TABLES for figure in table.measure()]
