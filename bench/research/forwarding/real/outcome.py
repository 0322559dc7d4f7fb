"""What came of the runs: figures, and a table with each policy's ratio to no forwarding and to round robin."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.figures import Figure
from rich.console import Console
from rich.table import Table

from research.forwarding.real.driver import Played
from research.forwarding.real.policies import NONE, OURS, TURNS

UNITS = {
    "hit rate": "",
    "mean TTFT": "s",
    "P50 TTFT": "s",
    "P99 TTFT": "s",
    "mean latency": "s",
    "P99 latency": "s",
    "load": "",
    "requests": "/s",
}
"""Of the values of each run. Load: requests of the busiest node over the mean of all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run's values, by their names in `UNITS`, and bytes of Tell with names for each block that came to be held."""

    workload: str
    policy: str
    values: dict[str, float]
    told: float


def outcome(played: Played) -> Outcome:
    """The values of one run."""
    firsts = [reply.first for reply in played.replies]
    lasts = [reply.last for reply in played.replies]
    served = Counter(reply.served for reply in played.replies)
    prompt = sum(counted.prompt_tokens for counted in played.counted)
    values = {
        "hit rate": sum(counted.cached_tokens for counted in played.counted) / prompt,
        "mean TTFT": statistics.fmean(firsts),
        "P50 TTFT": float(np.percentile(firsts, 50)),
        "P99 TTFT": float(np.percentile(firsts, 99)),
        "mean latency": statistics.fmean(lasts),
        "P99 latency": float(np.percentile(lasts, 99)),
        "load": max(served.values()) / (len(played.replies) / len(played.counted)),
        "requests": len(played.replies) / played.seconds,
    }
    stored = sum(counted.stored_blocks for counted in played.counted)
    told = sum(counted.update_bytes for counted in played.counted) / max(1, stored)
    return Outcome(played.workload, played.policy, values, told)


def figures(outcomes: Sequence[Outcome], note: str) -> list[Figure]:
    """One for each value; its peer, in the column of the paper, is no forwarding in the same run."""
    made = []
    for one in outcomes:
        none, turns = _of(outcomes, one.workload, NONE), _of(outcomes, one.workload, TURNS)
        for name, value in one.values.items():
            told = "peer: no forwarding" if none else ""
            if turns:
                told += f"; round robin {turns[name]:.3g}, ratio {_ratio(value, turns[name])}"
            made.append(Figure(f"{one.workload}, {one.policy}: {name}", value, UNITS[name], none.get(name), note=told))
        if one.policy == OURS:
            made.append(Figure(f"{one.workload}, {OURS}: Tell per stored block", one.told, "bytes", note=note))
    return made


def show(outcomes: Sequence[Outcome], title: str, console: Console) -> None:
    """A row for each run: value, and in brackets its ratio to no forwarding and to round robin."""
    table = Table(title=title, title_justify="left")
    for column in ("workload, policy", *(f"{name} {unit}".strip() for name, unit in UNITS.items())):
        table.add_column(column, justify="left" if column.startswith("workload") else "right")
    for one in outcomes:
        none, turns = _of(outcomes, one.workload, NONE), _of(outcomes, one.workload, TURNS)
        cells = [
            f"{value:.3g} ({_ratio(value, none.get(name))}, {_ratio(value, turns.get(name))})"
            for name, value in one.values.items()
        ]
        table.add_row(f"{one.workload}, {one.policy}", *cells)
    console.print(table)


def _of(outcomes: Sequence[Outcome], workload: str, policy: str) -> dict[str, float]:
    return next((one.values for one in outcomes if (one.workload, one.policy) == (workload, policy)), {})


def _ratio(value: float, peer: float | None) -> str:
    return f"{value / peer:.2f}" if peer else "–"
