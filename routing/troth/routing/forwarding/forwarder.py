"""The entry node's decision: its view of the group, what it saw itself, and a policy, put together."""

from __future__ import annotations

import random
from collections.abc import Iterable

from troth.protocol.reputation import LEAST_REPUTATION
from troth.routing.forwarding.dealings import CandidateDealings
from troth.routing.forwarding.decision import Candidate, Policy, ServingChoice
from troth.routing.prefixes.update import NodeLoad
from troth.routing.prefixes.view import GroupView

MOST_RANKED = 16
"""Nodes that the policy puts in order; those behind them go by their wait alone."""


class Forwarder:
    """Chooses who serves. Sends nothing: the caller does, and tells what came of it.

    Args:
        view: what this node knows of its group.
        policy: how to choose.
        chance: breaks ties; each node its own, or all would choose alike.
        own: this node's name among the candidates.
    """

    def __init__(self, view: GroupView, policy: Policy, chance: random.Random, own: str = "") -> None:
        self._view, self._policy, self._chance, self._own = view, policy, chance, own
        self.dealings = CandidateDealings()

    def choose(
        self, path: Iterable[tuple[int, int]], tokens: int, candidates: Iterable[str], now: float
    ) -> ServingChoice | None:
        """Who of `candidates` shall serve a prompt of so many tokens; None: all are full or gone.

        `candidates` are those that the request's draw allows.

        Counts the request as sent, and its prefix as held there from now on: call `ended` when it is over.
        """
        path = tuple(path)
        standings = self.standings(candidates, now)
        among = sum(1 << standing.slot for standing in standings)
        matches = self._view.search(path, among)
        choice = self._policy.choose(matches, standings, self._chance)
        if choice is not None:
            self._view.tree.use(self._view.members[choice.name].slot, matches)
            self._view.sent(choice.name, path, now)
            self.dealings.sent(choice.name, tokens - choice.tokens, now)
        return choice

    def admitted(self, path: Iterable[tuple[int, int]], tokens: int, name: str, now: float) -> int | None:
        """A draw gave this node a prompt of so many tokens, be it full or not: counted as ``choose`` does. How many of
        them are believed to be there; None for a node that is not in the group."""
        path, members = tuple(path), self._view.members
        if name not in members:
            return None
        slot = members[name].slot
        matches = self._view.search(path, 1 << slot)
        self._view.tree.use(slot, matches)
        self._view.sent(name, path, now)
        held = matches.held_by(slot)
        self.dealings.sent(name, tokens - held, now)
        return held

    def ranked(self, path: Iterable[tuple[int, int]], candidates: Iterable[str], now: float) -> tuple[str, ...]:
        """All of `candidates` that are not full, in the order in which the policy would choose them.

        For who does not know yet whom the draw allows: each is chosen among those behind it, so that of any two the
        first is the better one. Nothing is counted as sent.
        """
        left = self.standings(candidates, now)
        matches = self._view.search(tuple(path), sum(1 << standing.slot for standing in left))
        found: list[str] = []
        while left and len(found) < MOST_RANKED:
            choice = self._policy.choose(matches, left, self._chance)
            if choice is None:
                return tuple(found)
            found.append(choice.name)
            left = [standing for standing in left if standing.name != choice.name]
        return (*found, *(standing.name for standing in sorted(left, key=lambda one: one.wait)))

    def standings(self, candidates: Iterable[str], now: float) -> list[Candidate]:
        """Those of these names that are in the group, alive and trusted, each once."""
        members, found = self._view.members, []
        for name in dict.fromkeys(candidates):
            if name not in members:
                continue
            row = members[name]
            if row.alive and row.reputation >= LEAST_REPUTATION:
                seen, taken = self.dealings.of(name, now), self.dealings.taken(name, now)
                found.append(Candidate(name, row.slot, row.load, *seen, own=name == self._own, taken=taken))
        return found

    def reported(self, name: str, load: NodeLoad, now: float) -> None:
        """A node told its load, in an answer or in an update or heartbeat that the view took."""
        self._view.hear(name, load, now)
        self.dealings.reported(name, load.taken, now)

    def acknowledged(self, name: str, load: NodeLoad, round_trip: float, now: float) -> None:
        """A node has the request that we sent it, and says how loaded it is."""
        self.dealings.travelled(name, round_trip, now)
        self.reported(name, load, now)

    def ended(self, name: str, now: float, seconds: float | None = None) -> None:
        """A request sent there is over: answered after `seconds`, or, without, not answered."""
        self.dealings.ended(name, now, seconds)
