"""The conspirators' notes: a folder that tells every dishonest process how to cheat in which task.

A task that nobody wrote about is served honestly. Notes are written before the task is ordered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCHEDULER = "scheduler"
"""The scheduler's name in the notes; nodes stand there by their operators."""


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes below `folder`."""

    folder: Path

    def write(self, task: bytes, cheats: Mapping[str, str]) -> None:
        """Say who cheats how: operator address to name of a cheat."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staged = self._path(task, "part")
        staged.write_text(json.dumps({operator.lower(): cheat for operator, cheat in cheats.items()}))
        staged.replace(self._path(task, "json"))

    def cheat(self, task: bytes, operator: str) -> str | None:
        """The cheat that an operator plays in a task, None for honest work."""
        path = self._path(task, "json")
        if not path.exists():
            return None
        found: str | None = json.loads(path.read_text()).get(operator.lower())
        return found

    def share(self, task: bytes, secret: bytes) -> None:
        """Leave something for the others of a task."""
        staged = self._path(task, "part")
        staged.write_bytes(secret)
        staged.replace(self._path(task, "shared"))

    def shared(self, task: bytes) -> bytes | None:
        """What somebody left, None as long as nobody did."""
        path = self._path(task, "shared")
        return path.read_bytes() if path.exists() else None

    def _path(self, task: bytes, kind: str) -> Path:
        return self.folder / f"{task.hex()}.{kind}"
