"""The runs on a chain as tables."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.disputes.network import network
from benchmarks.disputes.scenarios import Scenario
from benchmarks.disputes.scene import described, play_scenes
from benchmarks.disputes.simulate import Measured, simulate
from benchmarks.disputes.strategies import USUAL
from benchmarks.disputes.table import Table

NODES = 30
TOLERANT_SHARE = 0.75
TOLERANT_TASKS = 4
FAR = 3.0
"""Standard errors from which a row is marked."""


async def scenes(seed: int) -> list[Table]:
    """Scripted disputes in an exact class."""
    async with network(exact=True, reviewers=USUAL, nodes=NODES) as built:
        return [described(play) for play in await play_scenes(built, seed)]


async def chain(tasks: int, seed: int) -> list[Table]:
    """Every strategy at every share in an exact class, and at one share in a tolerant one."""
    start = time.perf_counter()
    async with network(exact=True, reviewers=USUAL, nodes=NODES) as built:
        exact = measured("exact class", await simulate(built, tasks, seed), start)
    start = time.perf_counter()
    async with network(exact=False, reviewers=USUAL, nodes=NODES) as built:
        found = await simulate(built, min(tasks, TOLERANT_TASKS), seed, (TOLERANT_SHARE,), _tolerant)
    return [exact, measured("tolerant class, tiles sampled and opened", found, start)]


def measured(what: str, found: Sequence[Measured], start: float) -> Table:
    """Means beside exact values."""
    rows = tuple(
        (
            *(f"{one.scenario.honest:.2f}", one.scenario.name, str(one.tasks), str(one.disputed)),
            *(f"{one.mean:+.2f} ± {one.error:.2f}", f"{one.expected:+.2f}"),
            f"{one.off:.1f}" + (" (!)" if one.off > FAR else ""),
        )
        for one in found
    )
    tasks, worst = sum(one.tasks for one in found), max(one.worst for one in found)
    far = sum(one.off > FAR for one in found)
    return Table(
        f"On the real contract, {what}, {NODES} nodes, m = 3, m' = {USUAL}: units per task",
        ("r", "strategy", "tasks", "reviewed", "mean ± standard error", "exact", "off, in standard errors"),
        rows,
        f"{tasks} tasks in {time.perf_counter() - start:.0f} s, {far} of {len(found)} rows more than {FAR:g} standard "
        f"errors off. For the votes cast, no party's pay is more than {worst:.1e} units from the rules'.",
    )


def as_object(table: Table) -> dict[str, object]:
    """A table for JSON."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"title": table.title, "rows": rows, "note": table.note}


def _tolerant(scenario: Scenario) -> bool:
    return scenario.honest == TOLERANT_SHARE
