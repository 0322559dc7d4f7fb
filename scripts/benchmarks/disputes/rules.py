"""What one task pays each of its parties, in units: the first round as shipped, a review as the contract has it.

Parties are numbered as on chain: 0 is the inferencer, 1 + v is verifier v. Stakes are taken to suffice for every
charge. The least stake that the contract asks for covers any single one; who is charged for several tasks at once pays
until its stake is used up, and those who are owed share what there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from troth.protocol.payout import settle_task
from troth.protocol.settlement import (
    BOND,
    PENALTY,
    REWARD,
    Credit,
    Outcome,
    Party,
    Pot,
    Revealed,
    SegmentFindings,
    Slash,
    decide_segment,
    decide_task,
)

CLIENT = -1
"""Stands for the client where a disputer is named; it is no party of the segment."""
PLENTY = 10**6
"""Units of stake that no charge exhausts."""


class Conduct(Enum):
    """How a verifier votes."""

    HONEST = "honest"
    HOSTILE = "joins the attack"
    SIDES = "sides with the cheat"
    ALWAYS_YES = "lazy, always yes"
    ALWAYS_NO = "lazy, always no"
    SILENT = "commits nothing"
    WITHHOLDS = "commits, never reveals"


class Prize(Enum):
    """Who bears the reviewers' pay and what a right disputer gets: the contract's rule and three others."""

    BUILT = "as built"
    BOND_ONLY = "a lost dispute costs the bond alone"
    AS_RISKED = "a won dispute pays what it risked"
    VERIFIERS = "the same, to others than the inferencer"


@dataclass(frozen=True, slots=True)
class First:
    """A first round: its outcome, each party's units, and which verifiers would be right if a review said otherwise."""

    outcome: Outcome
    pay: tuple[int, ...]
    cluster: int
    posted: tuple[bool, ...]
    valid: frozenset[int]
    yes: frozenset[int]

    @property
    def disputable(self) -> bool:
        """A rejection in which nobody's verdict counted stays."""
        return self.outcome is not Outcome.REJECTED or bool(self.valid)

    def right(self, outcome: Outcome) -> frozenset[int]:
        """Verifiers who are right if the segment's outcome is this one."""
        return self.valid & self.yes if outcome is Outcome.ACCEPTED else self.valid - self.yes


def vote(conduct: Conduct, index: int, inferencer_honest: bool) -> Party:
    """What verifier ``index`` commits and opens; who attacks votes with all others that do, on one made-up trace."""
    name = f"v{index}"
    if conduct is Conduct.SILENT:
        return Party(name, committed=False)
    if conduct is Conduct.WITHHOLDS:
        return Party(name)
    if conduct in {Conduct.ALWAYS_YES, Conduct.ALWAYS_NO}:
        return Party(name, revealed=Revealed(f"guess of {index}".encode(), conduct is Conduct.ALWAYS_YES))
    attacks = conduct is Conduct.HOSTILE or (conduct is Conduct.SIDES and not inferencer_honest)
    trace = b"cheat" if attacks else b"true"
    return Party(name, revealed=Revealed(trace, attacks != inferencer_honest))


@lru_cache(maxsize=4096)
def first_round(inferencer_honest: bool, conducts: tuple[Conduct, ...]) -> First:
    """The shipped decision and payout of a task of one segment."""
    claimed = Party("inferencer", revealed=Revealed(b"true" if inferencer_honest else b"cheat", True))
    verifiers = tuple(vote(conduct, index, inferencer_honest) for index, conduct in enumerate(conducts))
    decision = decide_task([SegmentFindings(claimed, verifiers, None)])
    (segment,) = decision.segments
    names = [claimed.operator, *(party.operator for party in verifiers)]
    pot = Pot(REWARD * (2 + len(conducts)), 1, "client", "scheduler", "reserve")
    pay = dict.fromkeys(names, 0)
    for movement in settle_task(decision, pot, dict.fromkeys([*names, "scheduler"], PLENTY)):
        if isinstance(movement, Credit) and movement.account in pay:
            pay[movement.account] += movement.amount
        elif isinstance(movement, Slash):
            pay[movement.operator] -= movement.amount
    yes = frozenset(index for index, party in enumerate(verifiers) if party.revealed and party.revealed.verdict)
    return First(
        *(decision.outcome, tuple(pay.values()), len(segment.cluster)),
        *(tuple(party.committed for party in verifiers), segment.valid, yes),
    )


def review_by_votes(inferencer_honest: bool, conducts: tuple[Conduct, ...]) -> tuple[Outcome, int]:
    """Outcome of a review and the size of its cluster, decided as the first round is."""
    claimed = Party("inferencer", revealed=Revealed(b"true" if inferencer_honest else b"cheat", True))
    votes = tuple(vote(conduct, index, inferencer_honest) for index, conduct in enumerate(conducts))
    decision = decide_segment(SegmentFindings(claimed, votes, None))
    return decision.outcome, len(decision.cluster)


def review_pay(
    first: First, second: Outcome, cluster: int, disputer: int | None, prize: Prize = Prize.BUILT
) -> tuple[tuple[float, ...], float]:
    """What a review adds: units of each first party, and of a client that disputed (contracts/modules/ReviewPayment).

    ``cluster`` reviewers decided; ``disputer`` None is a first round that escalated by itself.
    """
    pay = [0.0] * len(first.pay)
    if second is Outcome.INDETERMINATE:
        return tuple(pay), 0.0
    risked = BOND + (0 if prize is Prize.BOND_ONLY else REWARD * cluster)
    if second is first.outcome:
        if disputer is None:
            raise ValueError("a decided first round is reviewed only if somebody disputes it")
        if disputer == CLIENT:
            return tuple(pay), -float(risked)
        pay[disputer] -= risked
        return tuple(pay), 0.0
    prized = prize is Prize.AS_RISKED or (prize is Prize.VERIFIERS and disputer != 0)
    return _overturn(first, second, cluster, disputer, risked if prized else 0)


def _overturn(
    first: First, second: Outcome, cluster: int, disputer: int | None, extra: int
) -> tuple[tuple[float, ...], float]:
    dues = _owed_to_first(first, second)
    client = float(REWARD) if disputer == CLIENT else 0.0
    if disputer == CLIENT:
        client += extra
    elif disputer is not None:
        dues[disputer] += extra
    refund = REWARD * (2 + first.cluster) if first.outcome is Outcome.ACCEPTED else 0
    right = first.right(second)
    losers = [1 + v for v, posted in enumerate(first.posted) if posted and v not in right]
    losers += [0] if second is Outcome.REJECTED else []
    if not losers:
        return (0.0,) * len(first.pay), 0.0
    total = REWARD + REWARD * cluster + sum(dues) + client + refund
    share = max(total / len(losers), REWARD + PENALTY)
    for loser in losers:
        dues[loser] -= share
    return tuple(dues), client


def _owed_to_first(first: First, second: Outcome) -> list[float]:
    """What the first outcome kept from those who were right."""
    decided = first.outcome is not Outcome.INDETERMINATE
    reward = float(REWARD + PENALTY if decided else REWARD)
    dues = [0.0] * len(first.pay)
    if second is Outcome.ACCEPTED:
        dues[0] = reward + (REWARD * first.cluster if decided else 0)
    for verifier in first.right(second):
        dues[1 + verifier] = reward
    return dues
