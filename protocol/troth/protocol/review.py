"""A segment's second verification: its id, its task, who is drawn, how many are needed (VeriLLM Appendix E).

The contract derives the same. A review is kept like a task of one segment: its client is who disputed, its fee the
bond.
"""

from __future__ import annotations

import math

from troth.protocol import typed_data
from troth.protocol.assignment import Members, draw
from troth.protocol.contract_types import Settled
from troth.protocol.errors import InvalidField
from troth.protocol.events.tasks import TaskSettled
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.settlement import BOND, REWARD, Outcome
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import Address, ExecutionClass, Hash32, to_hash32

REVIEW_TAG = keccak256(b"troth/review/1")
DRAW_TAG = keccak256(b"troth/review/draw/1")
DRAW_WINDOW = 200
"""Blocks after a dispute in which the hash of its block can still be relied on."""


def review_id(task_id: Hash32, segment: int) -> Hash32:
    """One per segment of a task, so that each is reviewed at most once."""
    return Hash32(abi_keccak(["bytes32", "bytes32", "uint8"], [REVIEW_TAG, to_hash32(task_id), segment]))


def review_task(task: Task, segment: int, disputer: Address, bond: int, block: int) -> Task:
    """The review of a segment of a settled ``task`` that began in ``block``."""
    terms, progress = task.terms, task.progress
    layers = terms.segments[segment]
    return Task(
        Terms(
            client=disputer,
            scheduler=terms.scheduler,
            execution_class=terms.execution_class,
            fee=bond,
            # Members of the dispute's own block could still leave in it.
            reference_block=block - 1,
            ends=Hash32(bytes((0, layers.first, layers.end)).ljust(32, b"\0")),
        ),
        Progress(
            phase=Phase.DISPUTED,
            phase_block=block,
            segments=1,
            candidates=1,
            attempt=progress.attempt,
            positions=progress.positions,
            output_hash=progress.output_hash,
            parties=task.parties_of(segment),
            posts=task.posts_of(segment)[:1],
        ),
    )


def draw_alpha(domain: typed_data.Domain, review: Hash32, *, group_size: int, block_hash: Hash32) -> Hash32:
    """VRF input of the draw; ``block_hash`` is that of the dispute's block, ``group_size`` counts empty slots too."""
    types = ["bytes32", "uint256", "address", "bytes32", "uint256", "bytes32"]
    values = [DRAW_TAG, domain.chain_id, domain.contract, to_hash32(review), group_size, to_hash32(block_hash)]
    return Hash32(abi_keccak(types, values))


def fresh(members: Members, first_parties: tuple[Address, ...]) -> Members:
    """The group with empty slots where the segment's first parties are."""
    return [None if member in first_parties else member for member in members]


def draw_reviewers(
    beta: Hash32, members: Members, first_parties: tuple[Address, ...], count: int
) -> tuple[Address, ...]:
    """The first ``count`` drawn of those who were no party; raises WrongAssignment where too few are left."""
    return draw(beta, fresh(members, first_parties), count)


def bond_of(execution_class: ExecutionClass, *, party: bool) -> int:
    """Wei that a dispute costs in advance: 8 units for a ``party`` that would profit, else the reviewers' pay too."""
    units = BOND if party else BOND + REWARD * execution_class.reviewers
    return execution_class.unit * units


def settled_by(event: TaskSettled) -> Settled:
    """What the contract keeps of the decision that ``event`` announced."""
    outcomes = tuple(int(outcome) for outcome in event.segment_outcomes)
    return Settled(outcomes, event.verdicts, event.clusters, event.valid, event.meta.block)


def in_the_right(settled: Settled, segment: int, outcome: Outcome) -> frozenset[int]:
    """First verifiers who would be right if the segment's outcome were this one."""
    verdicts, valid = settled.verdicts[segment], settled.valid[segment]
    right = valid & (verdicts if outcome is Outcome.ACCEPTED else ~verdicts)
    return frozenset(verifier for verifier in range(right.bit_length()) if right >> verifier & 1)


def is_disputable(settled: Settled, segment: int) -> bool:
    """Whether the contract takes a dispute of the segment."""
    outcome = settled.outcomes[segment]
    if outcome == Outcome.ACCEPTED:
        return all(other == Outcome.ACCEPTED for other in settled.outcomes)
    return outcome != Outcome.REJECTED or settled.valid[segment] != 0


def profits(task: Task, settled: Settled, segment: int, operator: Address) -> bool:
    """Whether another outcome would pay ``operator``, so that it disputes with its stake."""
    parties, verifiers = task.parties_of(segment), task.verifiers_of(segment)
    rejected = settled.outcomes[segment] == Outcome.REJECTED
    other = Outcome.ACCEPTED if rejected else Outcome.REJECTED
    right = in_the_right(settled, segment, other)
    return (rejected and parties[0] == operator) or any(verifiers[index] == operator for index in right)


def reviewers_needed(honest_share: float, error: float, miss: float = 0.0) -> int:
    """The smallest odd m' of VeriLLM's Lemma E.2: m' > ln(1/error) / (2 (r (1 - miss) - 1/2)^2).

    ``honest_share`` r is the share of honest nodes, ``error`` the probability of a wrong review, ``miss`` that an
    honest verifier errs. Raises InvalidField where no number suffices.
    """
    lead = honest_share * (1 - miss) - 0.5
    if not 0 < lead <= 0.5 or not 0 < error < 0.5:
        values = (honest_share, error, miss)
        raise InvalidField("A review needs an honest majority, and an error between 0 and 1/2", values, "Assume more.")
    least = math.floor(math.log(1 / error) / (2 * lead * lead)) + 1
    return least if least % 2 else least + 1
