"""What is compared. Every policy runs in the node's own Group: only the choice, or whom it may choose, is another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.published_forwarding import Published

from troth.protocol.types import Address
from troth.routing.forwarding.decision import Candidate, ChoiceReason, Policy, ServingChoice
from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.tree import Matches

Candidates = Callable[[int, Address, Sequence[Address]], Sequence[Address]]
"""Who may serve: of the request's number, the entry, and all members in the order of their addresses."""
OURS, NONE, TURNS = "ours", "no forwarding", "round robin"


class LeastLoaded:
    """Fewest requests per place, as the entry knows them; whatever is held where."""

    def choose(self, matches: Matches, candidates: Sequence[Candidate], chance: random.Random) -> ServingChoice | None:
        """See `Policy.choose`."""
        if not candidates:
            return None
        best = min(candidates, key=lambda standing: (standing.pressure, chance.random()))
        return ServingChoice(best.name, matches.held_by(best.slot), ChoiceReason.LOAD)


@dataclass(frozen=True, slots=True)
class Compared:
    """How an entry chooses, and among whom."""

    policy: Policy
    candidates: Candidates


def _everybody(number: int, entry: Address, members: Sequence[Address]) -> Sequence[Address]:
    return members


def _entry(number: int, entry: Address, members: Sequence[Address]) -> Sequence[Address]:
    return (entry,)


def _in_turn(number: int, entry: Address, members: Sequence[Address]) -> Sequence[Address]:
    return (members[number % len(members)],)


POLICIES = {
    OURS: Compared(Gated(), _everybody),
    "published": Compared(Published(), _everybody),
    NONE: Compared(LeastLoaded(), _entry),
    TURNS: Compared(LeastLoaded(), _in_turn),
    "least loaded": Compared(LeastLoaded(), _everybody),
}
"""By name, in the order in which they run."""
