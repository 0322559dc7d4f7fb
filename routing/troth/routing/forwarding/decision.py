"""What an entry node knows of each candidate, and what can become of a request."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from troth.routing.prefixes.tree import Matches
from troth.routing.prefixes.update import NodeLoad


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate.

    Args:
        name: its address.
        slot: its place in the tree.
        load: its own latest word.
        unreported: requests that we sent it since that word.
        unreported_tokens: tokens of their prompts that we do not believe to be there.
        in_flight: all requests of ours that it has not answered: what it says cannot go below that.
        dealt: requests that we sent it lately, decayed; nobody's word but ours.
        distance: seconds for a request to get there, as our own messages measured it; 0 for this node itself.
        own: whether it is the deciding node itself.
        latency: how long requests of ours took there, moving average in seconds; 0 before the first.
        taken: requests that it took lately, whoever dealt them, decayed; its own word, but at least `dealt`.
    """

    name: str
    slot: int
    load: NodeLoad
    unreported: int = 0
    unreported_tokens: int = 0
    in_flight: int = 0
    dealt: float = 0.0
    distance: float = 0.0
    latency: float = 0.0
    own: bool = False
    taken: float = 0.0

    @property
    def active(self) -> int:
        """Requests there now, running or waiting, as far as we know."""
        return max(self.load.queued + self.load.running + self.unreported, self.in_flight)

    @property
    def pending(self) -> int:
        """Prompt tokens that it has to compute before one more request's, as far as we know."""
        return self.load.pending + self.unreported_tokens

    @property
    def pressure(self) -> float:
        """`active` over capacity: above 1, requests wait."""
        return self.active / self.load.capacity

    @property
    def factor(self) -> float:
        """L · Q / C, with the slower of its latency and ours, and Q all requests that are there."""
        return max(self.load.latency, self.latency) * self.pressure

    @property
    def wait(self) -> float:
        """Seconds until it could begin: the way there, and L · Q / C per prompt token instead of per request."""
        return self.distance + self.load.pace * self.pending


class ChoiceReason(Enum):
    """Why a node was chosen: a label of the metrics."""

    MATCH = "match"
    """It holds the longest prefix among those with room."""
    LOAD = "load"
    """Nobody with room holds enough: the least loaded."""
    FALLBACK = "fallback"
    """Nobody has room by the gate: the least loaded of all."""


@dataclass(frozen=True, slots=True)
class ServingChoice:
    """`name` shall serve; `tokens` of the prompt are believed to be there."""

    name: str
    tokens: int
    reason: ChoiceReason


class Policy(Protocol):
    """Chooses among candidates. None: all are full, so that the request is refused."""

    def choose(self, matches: Matches, candidates: Sequence[Candidate], chance: random.Random) -> ServingChoice | None:
        """One of `candidates`, who are alive and allowed; `chance` breaks ties."""
        ...
