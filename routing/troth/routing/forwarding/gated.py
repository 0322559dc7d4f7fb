"""Our policy: a load gate before affinity, then the longest match, of equal ones the lowest load factor.

The published order, affinity first, lets one node collect a whole workload: where all prompts begin alike, who served
the first holds the match for all others, and nobody else ever comes to hold it. With the gate first a node is open
only as
long as

1. it has a place free, or no more requests than `excess` allows over the mean of those that could serve,
2. the wait there exceeds the shortest wait by no more than `saving` times the time that its match saves,
3. we did not deal it more than its share lately, whatever it holds or says: work, and pay, stay spread while queues are
   empty. This node itself is left out of that: who enters here chose so, for a conversation that is here.
4. it took no more than its share lately by what the nodes say themselves, for each of many entries deals little; here
   this node has a larger share, and beyond that even a conversation moves. The share is over the median, which
   fewer than half of the nodes cannot move by what they say; who says too little is still held by 3.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from troth.routing.forwarding.decision import Candidate, ChoiceReason, ServingChoice
from troth.routing.prefixes.tree import Matches


@dataclass(frozen=True, slots=True)
class Gated:
    """The gate and what counts as a match.

    Args:
        least_tokens: a shorter match is none.
        places: share of a node's capacity up to which it has a place free; some are on their way that we do not see.
        excess: requests over the candidates' mean, per capacity, as a share of it.
        saving: how much longer a wait is accepted than a match saves here: what is computed twice is lost to all.
        least_saved: tokens, the match that everybody is taken to have here: small waits are alike.
        share_excess, share_slack: of requests dealt lately: a share over the mean, and a number for quiet networks.
        taken_excess, taken_slack: the same of requests taken lately, over the median.
        own_excess: instead of `taken_excess` for this node itself.
        most_pressure: requests over capacity at which a node is full.
    """

    least_tokens: int = 64
    places: float = 0.85
    excess: float = 0.1
    saving: float = 2.0
    least_saved: int = 512
    share_excess: float = 0.05
    share_slack: float = 2.0
    taken_excess: float = 0.05
    own_excess: float = 0.15
    taken_slack: float = 1.0
    most_pressure: float = 8.0

    def choose(self, matches: Matches, candidates: Sequence[Candidate], chance: random.Random) -> ServingChoice | None:
        """See the module. Where the gate leaves nobody, the lowest load factor of all that are not full."""
        serving = [standing for standing in candidates if standing.pressure < self.most_pressure]
        if not serving:
            return None
        open_to = self._open(serving, matches)
        best = min(
            open_to or serving,
            key=lambda standing: (
                -self._worth(standing, matches) if open_to else 0,
                standing.wait,
                standing.factor,
                standing.taken / standing.load.capacity,
                chance.random(),
            ),
        )
        reason = ChoiceReason.MATCH if self._worth(best, matches) else ChoiceReason.LOAD
        return ServingChoice(best.name, matches.held_by(best.slot), reason if open_to else ChoiceReason.FALLBACK)

    def _worth(self, standing: Candidate, matches: Matches) -> int:
        held = matches.held_by(standing.slot)
        return held if held >= self.least_tokens else 0

    def _open(self, serving: Sequence[Candidate], matches: Matches) -> list[Candidate]:
        """Those that pass all four parts of the gate."""
        capacity = sum(standing.load.capacity for standing in serving)
        active = (1 + self.excess) * sum(standing.active for standing in serving) / capacity
        others = [standing for standing in serving if not standing.own]
        shared = sum(standing.load.capacity for standing in others) or 1
        dealt = (1 + self.share_excess) * sum(standing.dealt for standing in others) / shared
        taken = median_low(standing.taken / standing.load.capacity for standing in serving)
        shortest = min(standing.wait for standing in serving)
        return [
            standing
            for standing in serving
            if standing.active <= max(active, self.places) * standing.load.capacity
            and standing.wait - shortest <= self.saving * standing.load.pace * self._saved(standing, matches)
            and (standing.own or standing.dealt <= dealt * standing.load.capacity + self.share_slack)
            and standing.taken <= self._share(standing) * taken * standing.load.capacity + self.taken_slack
        ]

    def _share(self, standing: Candidate) -> float:
        return 1 + (self.own_excess if standing.own else self.taken_excess)

    def _saved(self, standing: Candidate, matches: Matches) -> int:
        return max(self.least_saved, matches.held_by(standing.slot))
