"""One measured figure, and how a list of them is printed."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its unit, beside the paper's figure (or a peer's) and the one we set out to reach."""

    name: str
    value: float
    unit: str
    paper: float | None = None
    reach: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Our value over the paper's, or over what we set out to reach where no other is known."""
        known = self.reach if self.paper is None else self.paper
        return self.value / known if known else None


def median_milliseconds(action: Callable[[], object], repeats: int = 200, warm_up: int = 10) -> float:
    """Median wall time of one call of `action`, in milliseconds."""
    for _ in range(warm_up):
        action()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def processor_milliseconds(action: Callable[[], object], repeats: int = 200, warm_up: int = 10) -> float:
    """Median processor time of one call of `action` in all threads, in milliseconds: what other programs do beside it
    changes it little."""
    for _ in range(warm_up):
        action()
    samples = []
    for _ in range(repeats):
        start = time.process_time_ns()
        action()
        samples.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(samples)


def measured_commit() -> str:
    """The commit of the checkout, with "+" behind it where tracked files differ from it; "no commit" outside of git."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        described = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return described.stdout.strip()


def as_json(name: str, figures: Sequence[Figure]) -> list[dict[str, object]]:
    """The figures as objects: name, value, unit, paper, reach, ratio, command, commit, and a note if there is one."""
    command, commit = f"scripts/bench {name}", measured_commit()
    return [
        {
            "name": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "paper": figure.paper,
            "reach": figure.reach,
            "ratio": figure.ratio,
            "command": command,
            "commit": commit,
        }
        | ({"note": figure.note} if figure.note else {})
        for figure in figures
    ]


def print_table(name: str, figures: Sequence[Figure]) -> None:
    """Print a table to standard output."""
    table = Table(title=f"scripts/bench {name}, at {measured_commit()}", title_justify="left")
    table.add_column("what")
    for column in ("ours", "paper", "reach", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    table.add_column("note", overflow="fold")
    for figure in figures:
        table.add_row(
            figure.name,
            _number(figure.value),
            _number(figure.paper),
            _number(figure.reach),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.unit,
            figure.note,
        )
    Console(width=140 if not Console().is_terminal else None).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
