"""The overlay's costs: `scripts/bench overlay [sida] [cells] [session] [paths]`; each a module with `measure`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.overlay import cells, paths, session, sida

TABLES = {"sida": sida, "cells": cells, "session": session, "paths": paths}
PARTS = tuple(TABLES)


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The figures of the tables that are named, or of all, in one run."""
    parser = argparse.ArgumentParser(prog="scripts/bench overlay", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(TABLES)}; all of them if none is named")
    parts = parser.parse_args(options).parts or list(TABLES)
    unknown = sorted(set(parts) - set(TABLES))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}: choose of {', '.join(TABLES)}")
    return [figure for part in parts for figure in TABLES[part].measure()]
