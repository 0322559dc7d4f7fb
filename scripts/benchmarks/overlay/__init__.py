"""The overlay's costs: `scripts/bench overlay [sida] [cells] [session] [paths]`; each a module with `measure`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.overlay import cells, paths, session, sida

TABLES = {"sida": sida, "cells": cells, "session": session, "paths": paths}


def measure(parts: Sequence[str] = tuple(TABLES)) -> list[Figure]:
    """The figures of these tables, or of all, in one run; raises SystemExit for a name that is none."""
    unknown = set(parts) - set(TABLES)
    if unknown:
        raise SystemExit(f"scripts/bench overlay has the parts {', '.join(TABLES)}; not {', '.join(sorted(unknown))}")
    return [figure for part in parts for figure in TABLES[part].measure()]
