"""The decision on a task and the money that follows from it (VeriLLM, Appendix E, with the pay of design section 4).

The contract decides the same from the same openings. Amounts are in wei. A slash never takes more than the stake,
slashing rounds up, paying rounds down, and what is left over goes to the reserve, so that for every decision

    fee + sum of slashes = sum of credits + what returns to the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

from troth.protocol.agreement import AgreementRule
from troth.protocol.clusters import proper_cluster
from troth.protocol.errors import InvalidSettlement

REWARD = 6
"""Units paid to an inferencer, to a cluster verifier and to the scheduler; more makes tasks dearer for clients."""
PENALTY = 2
"""Units slashed for one fault; less makes it cheap to stay silent or to guess."""
BOND = 8
"""Units that a disputer puts up; less makes it cheap to have right verdicts repeated."""
LATE_PENALTY = 4 * PENALTY
"""Units per segment slashed from a scheduler that misses its own deadline."""


class Outcome(IntEnum):
    """How a task or a segment ends; the codes of the contract."""

    ACCEPTED = 1
    REJECTED = 2
    INDETERMINATE = 3
    EXPIRED = 4
    ABORTED = 5


class SlashReason(IntEnum):
    """Why stake was taken; the codes of the contract."""

    REJECTED = 1
    DISAGREED = 2
    UNREVEALED = 3
    SCHEDULER_LATE = 4
    EQUIVOCATED = 5
    OVERTURNED = 6
    DISPUTE_LOST = 7


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a party opened: its trace root, its verdict (an inferencer's counts for nothing) and its sampled tiles."""

    root: bytes
    verdict: bool
    tiles: bytes = b""


@dataclass(frozen=True, slots=True)
class Party:
    """One party of a segment: whether it committed, and its opening if it gave a right one in time."""

    operator: str
    committed: bool = True
    revealed: Revealed | None = None


@dataclass(frozen=True, slots=True)
class SegmentFindings:
    """All that a segment is decided on. ``rule`` None is the exact class, where roots must be equal."""

    inferencer: Party
    verifiers: tuple[Party, ...]
    rule: AgreementRule | None


@dataclass(frozen=True, slots=True)
class SegmentDecision:
    """A segment's outcome; sets hold indices of verifiers. ``dissenting`` ones revealed outside the cluster.

    ``valid`` ones revealed a verdict that their own trace does not contradict; none if the inferencer revealed nothing.
    ``shown`` if it did.
    """

    outcome: Outcome
    inferencer: str
    verifiers: tuple[str, ...]
    cluster: frozenset[int]
    dissenting: frozenset[int]
    unrevealed: frozenset[int]
    valid: frozenset[int] = frozenset()
    shown: bool = True


@dataclass(frozen=True, slots=True)
class TaskDecision:
    """A task's outcome and those of its segments."""

    outcome: Outcome
    segments: tuple[SegmentDecision, ...]


@dataclass(frozen=True, slots=True)
class Pot:
    """The money of a task: its fee and unit in wei, and the accounts that money may flow to besides the parties'."""

    fee: int
    unit: int
    client: str
    scheduler: str
    reserve: str


@dataclass(frozen=True, slots=True)
class Slash:
    """Stake taken from an operator."""

    operator: str
    amount: int
    reason: SlashReason


@dataclass(frozen=True, slots=True)
class Credit:
    """Money that an account may claim."""

    account: str
    amount: int


@dataclass(frozen=True, slots=True)
class Release:
    """Part of the fee that returns to the client's escrow."""

    client: str
    amount: int


@dataclass(frozen=True, slots=True)
class BondReturn:
    """A disputer's bond, back where it came from."""

    disputer: str
    amount: int


Movement = Slash | Credit | Release | BondReturn


def decide_segment(findings: SegmentFindings) -> SegmentDecision:
    """Clusters the verifiers and decides on the inferencer.

    Raises InvalidSettlement if someone revealed without a commitment or the number of verifiers is even;
    InvalidOpening if openings cannot be compared with each other.
    """
    parties = findings.verifiers
    if len(parties) % 2 == 0:
        raise InvalidSettlement("The number of verifiers is even", len(parties), "An execution class has odd k.")
    for party in parties:
        if party.revealed and not party.committed:
            raise InvalidSettlement("A verifier revealed without a commitment", party.operator, "Drop its opening.")
    revealed = {index: party.revealed for index, party in enumerate(parties) if party.revealed}
    consistent = {index for index, own in revealed.items() if _is_consistent(own, findings)}
    edges = [
        pair
        for pair in combinations(sorted(consistent), 2)
        if revealed[pair[0]].verdict == revealed[pair[1]].verdict
        and _agree(revealed[pair[0]], revealed[pair[1]], findings.rule)
    ]
    cluster = proper_cluster(consistent, edges, len(parties) // 2 + 1)
    return SegmentDecision(
        outcome=_segment_outcome(findings, [revealed[index].verdict for index in cluster]),
        inferencer=findings.inferencer.operator,
        verifiers=tuple(party.operator for party in parties),
        cluster=cluster,
        dissenting=frozenset(revealed) - cluster,
        unrevealed=frozenset(i for i, party in enumerate(parties) if party.committed and not party.revealed),
        valid=frozenset(consistent) if findings.inferencer.revealed else frozenset(),
        shown=findings.inferencer.revealed is not None,
    )


def _is_consistent(own: Revealed, findings: SegmentFindings) -> bool:
    """A verifier contradicts itself if it accepts an inferencer whose revealed tiles disagree with its own."""
    claimed = findings.inferencer.revealed
    return not own.verdict or claimed is None or _agree(own, claimed, findings.rule)


def _agree(first: Revealed, second: Revealed, rule: AgreementRule | None) -> bool:
    return first.root == second.root if rule is None else rule.agrees(first.tiles, second.tiles)


def _segment_outcome(findings: SegmentFindings, verdicts: Sequence[bool]) -> Outcome:
    if findings.inferencer.revealed is None:
        return Outcome.REJECTED
    if not verdicts:
        return Outcome.INDETERMINATE
    return Outcome.ACCEPTED if verdicts[0] else Outcome.REJECTED


def decide_task(segments: Sequence[SegmentFindings]) -> TaskDecision:
    """Rejected if any segment is, else indeterminate if any is, else accepted; raises as ``decide_segment`` does."""
    if not segments:
        raise InvalidSettlement("A task without segments", 0, "Pass the findings of every segment.")
    decisions = tuple(decide_segment(segment) for segment in segments)
    outcomes = {decision.outcome for decision in decisions}
    order = (Outcome.REJECTED, Outcome.INDETERMINATE, Outcome.ACCEPTED)
    return TaskDecision(next(outcome for outcome in order if outcome in outcomes), decisions)
