"""What machines measured lately: layer times, room for cache, link times; one scheduler's own table, with expiry.

Parallax keeps it in a distributed hash table because its schedulers are many; one scheduler needs none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.routing.pipelines.graph import Floats, Graph, PipelineHost, relayed

EXPIRY_SECONDS = 6.0
"""Reports come every 1 to 2 s: three may be lost before a machine is out."""
MOST_NODES = 2048
"""Machines with a row in the table of links, 64 MiB of times at most."""

REMEMBERED = 8
"""Last sequences kept per row: of machines that left, too."""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """One machine's word about itself. `sequence` rises with each, so that an old one cannot be played again."""

    sequence: int
    host: PipelineHost


class LiveMap:
    """The latest report of each machine and the latest time of each link. `now` is always the scheduler's own clock.

    Senders are authenticated before: `report` by the machine itself, `link` by its first end. A refused report changes
    nothing and returns False.
    """

    def __init__(
        self,
        expiry_seconds: float = EXPIRY_SECONDS,
        most_nodes: int = MOST_NODES,
        link_expiry_seconds: float | None = None,
    ) -> None:
        """Links expire with the reports, or later: distances change less often than loads."""
        self._expiry = expiry_seconds
        self._link_expiry = expiry_seconds if link_expiry_seconds is None else link_expiry_seconds
        self._most = most_nodes
        self._rows: dict[str, int] = {}
        self._reports: dict[str, tuple[float, MachineReport]] = {}
        self._sequences: dict[str, int] = {}
        self._seconds = np.full((0, 0), math.inf)
        self._stamps = np.full((0, 0), -math.inf)

    @property
    def size(self) -> int:
        """Machines in the table, expired ones included."""
        return len(self._reports)

    def report(self, report: MachineReport, now: float) -> bool:
        """Store a machine's report. Refused: replayed or overtaken ones, times that are none, one machine too many."""
        host = report.host
        numbers = (host.layer_seconds, host.entry_seconds, host.exit_seconds)
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or host.layer_seconds == 0:
            return False
        if report.sequence <= self._sequences.get(host.name, -1) or not self._row(host.name, now):
            return False
        self._reports[host.name] = (now, report)
        self._remember(host.name, report.sequence)
        return True

    def link(self, one: str, other: str, seconds: float, now: float) -> bool:
        """Store the one-way time between two machines that have reported. Refused: strangers, times that are none."""
        rows = self._rows.get(one), self._rows.get(other)
        if rows[0] is None or rows[1] is None or rows[0] == rows[1]:
            return False
        if not math.isfinite(seconds) or seconds < 0:
            return False
        self._seconds[rows], self._stamps[rows] = seconds, now
        return True

    def forget(self, name: str) -> None:
        """A machine left: its report and its links are gone at once."""
        self._reports.pop(name, None)
        row = self._rows.pop(name, None)
        if row is not None:
            self._stamps[row, :] = self._stamps[:, row] = -math.inf

    def graph(self, layers: int, now: float) -> Graph:
        """The machines of `hosts`; the scheduler carries states from one to the next, so links between them do not
        count."""
        hosts = list(self.hosts(now).values())
        return Graph(hosts, relayed(hosts), layers)

    def hosts(self, now: float) -> dict[str, PipelineHost]:
        """The machines whose reports have not expired, by name."""
        return {name: report.host for name, (at, report) in self._reports.items() if now - at <= self._expiry}

    def links(self, now: float) -> Mapping[tuple[str, str], float]:
        """Every link time that has not expired, as long as the table does not change."""
        return FreshLinks(self._rows, self._seconds, now - self._stamps <= self._link_expiry)

    def unmeasured(self, one: str, now: float) -> list[str]:
        """The other machines to which `one` has told no time lately, in no order: one row of the table is looked at."""
        row = self._rows.get(one)
        fresh = [] if row is None else (now - self._stamps[row] <= self._link_expiry).tolist()
        return [name for name, place in self._rows.items() if name != one and not (fresh and fresh[place])]

    def _remember(self, name: str, sequence: int) -> None:
        """Sequences outlive their machine, so that it cannot be brought back by an old report; the oldest go first."""
        self._sequences.pop(name, None)
        self._sequences[name] = sequence
        if len(self._sequences) > REMEMBERED * self._most:
            del self._sequences[next(iter(self._sequences))]

    def _row(self, name: str, now: float) -> bool:
        """Give the machine a row: its own, a free one, one of an expired machine, or a new one."""
        if name in self._rows:
            return True
        if len(self._rows) >= self._most:
            expired = [other for other, (at, _) in self._reports.items() if now - at > self._expiry]
            if not expired:
                return False
            self.forget(min(expired))
        taken = set(self._rows.values())
        row = next(row for row in range(len(taken) + 1) if row not in taken)
        if row >= len(self._seconds):
            self._grow(min(self._most, max(16, 2 * row)))
        self._rows[name] = row
        return True

    def _grow(self, size: int) -> None:
        grown = [np.full((size, size), fill) for fill in (math.inf, -math.inf)]
        for new, old in zip(grown, (self._seconds, self._stamps), strict=True):
            new[: len(old), : len(old)] = old
        self._seconds, self._stamps = grown


class FreshLinks(Mapping[tuple[str, str], float]):
    """Link times looked up one by one: a dictionary of them all takes a second to make where there are 600 machines."""

    def __init__(self, rows: Mapping[str, int], seconds: Floats, fresh: NDArray[np.bool_]) -> None:
        self._rows = rows
        self._seconds = seconds
        self._fresh = fresh

    def __getitem__(self, pair: tuple[str, str]) -> float:
        place = self._rows[pair[0]], self._rows[pair[1]]
        if not self._fresh[place]:
            raise KeyError(pair)
        return float(self._seconds[place])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        names = {row: name for name, row in self._rows.items()}
        for one, other in np.argwhere(self._fresh).tolist():
            if one in names and other in names:
                yield names[one], names[other]

    def __len__(self) -> int:
        return sum(1 for _ in self)
