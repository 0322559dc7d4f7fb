"""Lanes and charts as plain numbers for the templates' SVG: no script draws them, and each has its table beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from troth.explorer.database import Database
from troth.explorer.words import family

WIDTH = 720.0
HEIGHT = 150.0
BINS = 48
"""Bars of a chart: a phone still shows each."""
SAMPLES = 60
"""Points of a line."""
LANES_SHOWN = 12
"""Lanes of one model; a model that is cut in more ways shows the widest of them first."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A bar or a lane, in the drawing's units; ``label`` says what it is."""

    x: float
    y: float
    width: float
    height: float
    label: str
    value: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars or lines over blocks, and Unix times of their ends where known; empty where there is nothing to draw."""

    first: int
    last: int
    most: int
    bars: tuple[ChartBar, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    since: int = 0
    until: int = 0

    @property
    def empty(self) -> bool:
        """Nothing to draw."""
        return not (self.bars or self.lines)


@dataclass(frozen=True, slots=True)
class ModelLanes:
    """A model's layers from left to right: how many nodes hold each, and the groups that may be drawn for them."""

    execution_class: str
    name: str
    architecture: str
    layers: int
    nodes: int
    coverage: tuple[ChartBar, ...]
    groups: tuple[ChartBar, ...]
    height: float
    thinnest: int


def lanes(row: Sequence[Any], groups: Iterable[Sequence[Any]], slices: Sequence[Sequence[int]]) -> ModelLanes:
    """The lanes of a class, from its row, the rows of all groups, and (first, end, nodes) of what is hosted."""
    execution_class, name, architecture, layers = row[:4]
    unit = WIDTH / max(layers, 1)
    held = [sum(count for first, end, count in slices if first <= layer < end) for layer in range(layers)]
    most = max(held, default=0) or 1
    coverage = tuple(
        ChartBar(
            layer * unit,
            30 - 30 * count / most,
            max(unit - 1, 0.5),
            30 * count / most,
            f"layer {layer}: {count}",
            count,
        )
        for layer, count in enumerate(held)
    )
    own = sorted((one for one in groups if one[0] == execution_class), key=lambda one: (one[1] - one[2], one[1]))
    lanes_of = _packed([(one[1], one[2]) for one in own[:LANES_SHOWN]])
    bars = tuple(
        ChartBar(
            *(one[1] * unit, 38 + 24 * lane, max((one[2] - one[1]) * unit - 2, 1), 20),
            f"layers {one[1]}–{one[2] - 1}: {one[3]} nodes of {one[4]} owners, {one[5]} seats",
            one[3],
        )
        for lane, one in zip(lanes_of, own, strict=False)
    )
    nodes = sum(count for _, _, count in slices)
    height = 42.0 + 24 * (max(lanes_of, default=-1) + 1)
    return ModelLanes(
        execution_class, name, family(architecture), layers, nodes, coverage, bars, height, min(held, default=0)
    )


def _packed(spans: Sequence[tuple[int, int]]) -> list[int]:
    """A lane for each span: the first in which nothing is in its way."""
    taken: list[list[tuple[int, int]]] = []
    made = []
    for first, end in spans:
        free = (all(end <= one or other <= first for one, other in held) for held in taken)
        lane = next((place for place, fits in enumerate(free) if fits), len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((first, end))
        made.append(lane)
    return made


def gas(database: Database) -> Chart:
    """Gas of all transactions over blocks, in bars."""
    first, last = database.execute("SELECT min(block), max(block) FROM transactions WHERE used IS NOT NULL").fetchone()
    if first is None:
        return Chart(0, 0, 0)
    span = max(last - first + 1, 1)
    size = -(-span // BINS)
    found = database.execute(
        "SELECT (block - ?) / ?, sum(used), count(*) FROM transactions WHERE used IS NOT NULL GROUP BY 1 ORDER BY 1",
        (first, size),
    ).fetchall()
    most = max(used for _, used, _ in found) or 1
    unit = WIDTH / BINS
    bars = tuple(
        ChartBar(
            *(place * unit, HEIGHT - HEIGHT * used / most, unit - 2, max(HEIGHT * used / most, 1)),
            f"blocks {first + place * size:,}–{first + (place + 1) * size - 1:,}: {used:,} gas, {count} transactions",
            used,
        )
        for place, used, count in found
    )
    times = database.execute("SELECT min(time), max(time) FROM blocks WHERE time > 0").fetchone()
    return Chart(first, last, most, bars, since=times[0] or 0, until=times[1] or 0)


def prices(database: Database) -> Chart:
    """The median ask for a written position of all nodes, over blocks, as a line for each model's whole-model group."""
    found = database.execute(
        "SELECT class, block, operator || first || '-' || \"end\", written FROM asks "
        "ORDER BY class, block, log_index LIMIT 20000"
    ).fetchall()
    if not found:
        return Chart(0, 0, 0)
    first, last = min(row[1] for row in found), max(row[1] for row in found)
    end = max(last, database.execute("SELECT block FROM progress").fetchone()[0])
    step = max((end - first) / SAMPLES, 1)
    series = {name: _medians(list(of), first, step) for name, of in groupby(found, key=lambda row: row[0])}
    most = max((value for values in series.values() for value in values), default=0) or 1
    lines = tuple((name, _points(values, most)) for name, values in list(series.items())[:6])
    return Chart(first, end, most, lines=lines)


def _medians(changes: Sequence[Sequence[Any]], first: int, step: float) -> list[int]:
    """The median of what is asked, at each sample; 0 before anybody asked."""
    asked: dict[str, int] = {}
    made, place = [], 0
    for sample in range(SAMPLES + 1):
        until = first + sample * step
        while place < len(changes) and changes[place][1] <= until:
            asked[changes[place][2]] = changes[place][3]
            place += 1
        ordered = sorted(asked.values())
        made.append(ordered[len(ordered) // 2] if ordered else 0)
    return made


def _points(values: Sequence[int], most: int) -> str:
    """An SVG polyline of steps."""
    unit = WIDTH / SAMPLES
    made: list[str] = []
    for place, value in enumerate(values):
        if not value and not made:
            continue  # nobody asked yet: a line from the ground would say that it was free
        y = HEIGHT - (HEIGHT - 8) * value / most
        made += [f"{place * unit:.1f},{y:.1f}", f"{(place + 1) * unit:.1f},{y:.1f}"]
    return " ".join(made[:-1])


def steps(life: Iterable[Sequence[Any]]) -> list[tuple[int, str, dict[str, list[tuple[str, str]]]]]:
    """A case's life by transaction: the block, the transaction, and what was said in each lane."""
    made = []
    for (block, transaction), rows in groupby(life, key=lambda row: (row[0], row[4])):
        said: dict[str, list[tuple[str, str]]] = {}
        for _, lane, words, amount, _ in rows:
            said.setdefault(lane, []).append((words, amount))
        made.append((block, transaction, said))
    return made
