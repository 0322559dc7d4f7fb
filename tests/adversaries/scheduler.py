"""The process of a dishonest scheduler: `python -m adversaries.scheduler --home FOLDER --notes FOLDER`.

It is the shipped scheduler; in the tasks that its notes are about, one step is another: how it draws, what it hands to
verifiers, whether it settles.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from adversaries.notes import SCHEDULER, Notes
from troth.overlay.logs import configure
from troth.protocol import vrf
from troth.protocol.assignment import Assignment
from troth.protocol.types import Hash32, Order
from troth.protocol.wire import Compare
from troth.scheduler import assembly, closing, lifecycle
from troth.scheduler.admission import Admission
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.closing import Closing
from troth.scheduler.errors import TaskFailed
from troth.scheduler.records import Settled
from troth.scheduler.serving import serve
from troth.scheduler.trace_store import TaskTraces
from troth.scheduler.verification import SegmentVerification

CheatOf = Callable[[bytes], str | None]
Rows = list[bytes]

_earlier: dict[str, bytes] = {}


def altered(rows: Rows) -> Rows:
    """One bit of one state."""
    return [*rows[:5], bytes([rows[5][0] ^ 1]) + rows[5][1:], *rows[6:]]


def dropped(rows: Rows) -> Rows:
    """One row is left out, and the last one stands twice."""
    return [*rows[:5], *rows[6:], rows[-1]]


def reordered(rows: Rows) -> Rows:
    """Two rows in each other's place."""
    return [*rows[:5], rows[6], rows[5], *rows[7:]]


def replayed(rows: Rows) -> Rows:
    """The rows of the first task that was served, as many as there are here."""
    data, size = _earlier["rows"], len(rows[0])
    return [data[start : start + size] for start in range(0, len(rows) * size, size)]


TAMPERINGS: dict[str, Callable[[Rows], Rows]] = {
    "altered rows": altered,
    "dropped rows": dropped,
    "reordered rows": reordered,
    "replayed rows": replayed,
}


class DishonestAdmission(Admission):
    """Proves with a key that nobody registered, or names other parties than its proofs draw."""

    cheat_of: CheatOf

    def _draw(self, order: Order, task: Hash32, *rest: Any) -> tuple[Assignment, tuple[Hash32, ...]]:
        cheat = self.cheat_of(task)
        if cheat == "wrong VRF key":
            other = Admission(self._catalogue, self._scheduler, vrf.generate_key(), self._domain)
            return other._draw(order, task, *rest)
        assignment, alphas = super()._draw(order, task, *rest)
        if cheat == "wrong assignment":
            turned = tuple(tuple(reversed(parties)) for parties in assignment.parties)
            assignment = replace(assignment, parties=turned)
        return assignment, alphas


class TamperedTraces:
    """The stored rows of a task, changed on their way out."""

    def __init__(self, traces: TaskTraces, row_bytes: int, change: Callable[[Rows], Rows]) -> None:
        self._traces = traces
        self._size = row_bytes
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traces, name)

    def rows(self, *place: int) -> bytes:
        data = self._traces.rows(*place)
        return b"".join(self._change([data[start : start + self._size] for start in range(0, len(data), self._size)]))


class DishonestVerification(SegmentVerification):
    """Shows verifiers other rows than the inferencer's, or none."""

    cheat_of: CheatOf

    def __init__(self, task: AdmittedTask, *rest: Any, traces: TaskTraces, **more: Any) -> None:
        super().__init__(task, *rest, traces=traces, **more)
        self._cheat = self.cheat_of(task.task_id) or ""
        if self._cheat in TAMPERINGS:
            self._traces = TamperedTraces(traces, task.row_bytes, TAMPERINGS[self._cheat])  # type: ignore[assignment]

    def _compare_request(self, start: int, count: int, root: Any) -> Compare:
        if self._cheat == "withheld target":
            raise TaskFailed("Nothing is shown to verifiers")
        if self._cheat == "nothing":
            _earlier["rows"] = self._traces.rows(self._segment, self._generated.attempt, 0, self._positions)
        return super()._compare_request(start, count, root)


class DishonestClosing(Closing):
    """Commits and then does nothing any more."""

    cheat_of: CheatOf

    async def settle(self, record: Any) -> Settled:
        if self.cheat_of(self._task.task_id) == "never settles":
            await asyncio.Event().wait()
        return await super().settle(record)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    arguments = parser.parse_args()
    configure("info")
    cheat_of = partial(Notes(arguments.notes).cheat, operator=SCHEDULER)
    for module, part in (
        (assembly, DishonestAdmission),
        (closing, DishonestVerification),
        (lifecycle, DishonestClosing),
    ):
        part.cheat_of = staticmethod(cheat_of)
        setattr(module, part.__mro__[1].__name__, part)
    uvloop.run(serve(arguments.home, None))


if __name__ == "__main__":
    main()
