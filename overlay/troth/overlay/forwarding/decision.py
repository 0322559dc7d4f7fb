"""What can become of a request at its entry node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from troth.overlay.forwarding.standing import Standing
from troth.overlay.hash_radix.tree import Matches


class Reason(Enum):
    """Why a node was chosen: a label of the metrics."""

    MATCH = "match"
    """It holds the longest prefix among those with room."""
    LOAD = "load"
    """Nobody with room holds enough: the least loaded."""
    FALLBACK = "fallback"
    """Nobody has room by the gate: the least loaded of all."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`name` shall serve; `tokens` of the prompt are believed to be there."""

    name: str
    tokens: int
    reason: Reason


class Policy(Protocol):
    """Chooses among candidates. None: all are full, so that the request is refused."""

    def choose(self, matches: Matches, candidates: Sequence[Standing], chance: random.Random) -> Choice | None:
        """One of `candidates`, who are alive and allowed; `chance` breaks ties."""
        ...
