"""One party of the local network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.demo.processes import Child


@dataclass(slots=True)
class Party:
    """A process with a home folder, an operator address where it has one, and an endpoint."""

    name: str
    home: Path
    operator: str = ""
    endpoint: str = ""
    child: Child | None = None
