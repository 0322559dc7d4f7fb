"""What a member knows of what nodes' epochs have added up to (`troth.protocol.credit.CreditEvidence`).

Each member adds up what it computed itself, of the updates that were settled. A member that missed an epoch does not
know all of it. It forgets, as evidence does: after ``SURE`` epochs in a row it knows as much as the others. Until then
it takes another one's word for whether a credit is halved, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from troth.protocol.credit import ALLOWED, MOST, Credit, CreditEvidence
from troth.protocol.reputation import ONE
from troth.protocol.types import Address

SURE = round(MOST / ALLOWED)
"""Epochs after which no evidence is left that is older."""
MOST_NODES = 1024
TOLERANCE = ONE // 100
"""By which two members' credits for one node may differ: kernels of other machines round otherwise."""


class KnownEvidence(msgspec.Struct, frozen=True):
    """CreditEvidence by node, and how many epochs in a row it is of, ``SURE`` at most."""

    judged: int = SURE
    sums: dict[str, tuple[float, float]] = {}

    @property
    def nodes(self) -> dict[Address, CreditEvidence]:
        """By node; who is missing has none."""
        return {Address(node): CreditEvidence(*sums) for node, sums in self.sums.items()}

    def after(self, credits: Mapping[Address, Credit]) -> KnownEvidence:
        """With one more epoch; whoever was not scored in it keeps what there was."""
        found = {**self.nodes, **{node: credit.evidence for node, credit in credits.items()}}
        sums = {str(node): (one.above, one.below) for node, one in found.items() if max(one.above, one.below) > 0}
        heaviest = sorted(sums, key=lambda node: (-max(sums[node]), node))[:MOST_NODES]
        return KnownEvidence(min(SURE, self.judged + 1), {node: sums[node] for node in heaviest})

    def allows(self, own: Credit, given: int) -> bool:
        """Whether another member may have come to this credit, where this one came to ``own``."""
        if abs(own.value - given) <= TOLERANCE:
            return True
        whole = round(own.mean * ONE)
        return self.judged < SURE and whole // 2 - TOLERANCE <= given <= whole + TOLERANCE


NOTHING_YET = KnownEvidence()
"""Before the first epoch is settled: there is nothing to know."""
UNKNOWN = KnownEvidence(0)
"""Of a member that did not judge the last update."""
