"""A journal at whose steps something happens to the world: the seam at which tests place their faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from troth.scheduler.journal import Journal
from troth.scheduler.records import Record, step_name

Happening = Callable[[], None]


class ScriptedJournal(Journal):
    """Before a step of the script is written for the first time, its happening takes place, in the writer's thread."""

    def __init__(self, path: Path, *, script: Mapping[str, Happening]) -> None:
        super().__init__(path)
        self._script = dict(script)

    def append(self, task: bytes, record: Record) -> None:
        happening = self._script.pop(step_name(record), None)
        if happening is not None:
            happening()
        super().append(task, record)
