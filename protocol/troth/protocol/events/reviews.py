"""Events of a segment's second verification (ITrothDisputes.sol); the rest of it is in task events under its own id."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.events.log import LogMeta
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class TaskDisputed:
    """A review begins. ``balance`` is what the ``bond`` left; zero address and no bond if the segment was undecided."""

    task_id: Hash32
    review_id: Hash32
    disputer: Address
    segment: int
    bond: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewAssigned:
    """The inferencer, then the reviewers that the VRF drew."""

    review_id: Hash32
    parties: tuple[Address, ...]
    beta: Hash32
    proof: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewSettled:
    """Decided; bit masks over the reviewers. ``task_outcome`` is how the task stands now."""

    task_id: Hash32
    review_id: Hash32
    segment: int
    outcome: Outcome
    task_outcome: Outcome
    verdicts: int
    cluster: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class ReviewExpired:
    """Its scheduler missed a deadline in ``phase``, or there was nobody to draw."""

    review_id: Hash32
    phase: Phase
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class BondReturned:
    """``balance`` is what the disputer has after it, where the bond came from."""

    review_id: Hash32
    disputer: Address
    amount: int
    balance: int
    meta: LogMeta


ReviewEvent = TaskDisputed | ReviewAssigned | ReviewSettled | ReviewExpired | BondReturned
