"""Where this package ends: what brings a rejected answer to the court, and what checks an answer with one's own model.

Both are handed everything that was signed about the order, and what only its client knows: request, salt and tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from troth.cases.evidence import Evidence as CaseFile
from troth.protocol.market.types import CaseKind, Opinion


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a client holds of one order, and over which ``segments`` it goes to court.

    ``tokens``: the answer; ``file`` holds everything else, and is what anybody acts on.
    """

    kind: CaseKind
    segments: tuple[int, ...]
    file: CaseFile
    tokens: tuple[int, ...]


class CaseOpener(Protocol):
    """Opens a case, or says how."""

    async def open(self, evidence: Evidence) -> str:
        """What was done, or why not, in one line for the user."""


class OwnCheck(Protocol):
    """Computes an answer again with a model of one's own."""

    async def check(self, evidence: Evidence) -> Opinion:
        """What it says of the answer."""
