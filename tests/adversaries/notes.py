"""The conspirators' notes: a folder that tells every process how to cheat in which order.

An order that nobody wrote about is served honestly. Parts are named by what somebody is in the order: "inferencer",
"verifier 0" in the order of first seats, "scheduler". Notes are written before the order is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INFERENCER, SCHEDULER = "inferencer", "scheduler"


def verifier(number: int) -> str:
    """Who holds the first seat that no verifier before it holds."""
    return f"verifier {number}"


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes below `folder`."""

    folder: Path

    def write(self, order: bytes, cheats: Mapping[str, str]) -> None:
        """Say who cheats how: part to name of a cheat."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staged = self._path(order, "part")
        staged.write_text(json.dumps(dict(cheats)))
        staged.replace(self._path(order, "json"))

    def cheats(self, order: bytes) -> dict[str, str]:
        """Part to cheat; empty for honest work."""
        path = self._path(order, "json")
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def cheat(self, order: bytes, part: str) -> str | None:
        """The cheat of one part, None for honest work."""
        return self.cheats(order).get(part)

    def share(self, order: bytes, secret: bytes) -> None:
        """Leave something for the others of an order."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staged = self._path(order, "part")
        staged.write_bytes(secret)
        staged.replace(self._path(order, "shared"))

    def shared(self, order: bytes) -> bytes | None:
        """What somebody left, None as long as nobody did."""
        path = self._path(order, "shared")
        return path.read_bytes() if path.exists() else None

    def tell(self, order: bytes, **what: Any) -> None:
        """Add a line to what was seen in an order, or by a party whose address is given in its place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path(order, "seen").open("a") as file:
            file.write(json.dumps(what) + "\n")

    def seen(self, order: bytes) -> list[dict[str, Any]]:
        """Every line that was told."""
        path = self._path(order, "seen")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _path(self, order: bytes, kind: str) -> Path:
        return self.folder / f"{bytes(order).hex()}.{kind}"
