"""The published policies, for comparison: PlanetServe's text (section 3.3), and its Algorithm 2 with a threshold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from troth.routing.forwarding.decision import Candidate, ChoiceReason, ServingChoice
from troth.routing.prefixes.tree import Matches


@dataclass(frozen=True, slots=True)
class Published:
    """Affinity first, then load.

    Args:
        chunks: τ, chunks that must match.
        threshold: requests over capacity up to which a match is followed (Algorithm 2, line 7); None as in the text.
    """

    chunks: int = 1
    threshold: float | None = None

    def choose(self, matches: Matches, candidates: Sequence[Candidate], chance: random.Random) -> ServingChoice | None:
        """Of those that hold the deepest match the one with the lowest load factor; on a miss of all."""
        if not candidates:
            return None
        if matches.levels and matches.chunks[0] >= self.chunks:
            tokens, holders = matches.levels[0]
            holding = [standing for standing in candidates if holders >> standing.slot & 1]
            best = _lowest(holding, chance)
            if self.threshold is None or best.pressure < self.threshold:
                return ServingChoice(best.name, tokens, ChoiceReason.MATCH)
            fallback = _lowest(candidates, chance)
            return ServingChoice(fallback.name, matches.held_by(fallback.slot), ChoiceReason.FALLBACK)
        return ServingChoice(_lowest(candidates, chance).name, 0, ChoiceReason.LOAD)


def _lowest(candidates: Sequence[Candidate], chance: random.Random) -> Candidate:
    """The lowest load factor as its node reported it."""
    return min(candidates, key=lambda standing: (standing.load.factor, chance.random()))
