"""The court, summons and logs as Proceedings.sol has them: what a case, a demand and an entry are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from troth.protocol.market.types import NO_ADDRESS, NO_ADDRESSES, NO_HASH, NO_HASHES, Bytes, Uint40
from troth.protocol.types import Address, Hash32, Uint8, Uint32, Uint64, Uint96

# ------------------------------------------------------------------------------------------------------------ court


class CaseKind(IntEnum):
    """Why a case was opened: a majority rejected, none did and the client doubts, or the leaf was not drawn."""

    NONE = 0
    REJECTION = 1
    ACCEPTANCE = 2
    DOUBT = 3


class CasePhase(IntEnum):
    """Where a case is."""

    NONE = 0
    OPENED = 1
    DRAWN = 2
    COMMITTED = 3
    SEEDED = 4


class Outcome(IntEnum):
    """How a case ends."""

    NONE = 0
    UPHELD = 1
    CONVICTED = 2
    REFUNDED = 3
    UNDECIDED = 4
    OPENER_MISSING = 5
    SCHEDULER_MISSING = 6
    NODE_MISSING = 7
    LAPSED = 8


@dataclass(frozen=True, slots=True)
class CaseState:
    """A case on its way; the Court keeps its hash. ``verifiers`` are one per seat, ``reviewers`` distinct nodes.

    ``opinions`` and ``seats`` hold a byte for each of them.
    """

    kind: CaseKind = CaseKind.NONE
    phase: CasePhase = CasePhase.NONE
    segment: Uint8 = 0
    round: Uint8 = 0
    suspends: bool = False
    phase_block: Uint40 = 0
    reference_block: Uint64 = 0
    answered_at: Uint64 = 0
    rows: Uint32 = 0
    order: Hash32 = NO_HASH
    execution_class: Hash32 = NO_HASH
    ends: Hash32 = NO_HASH
    result: Hash32 = NO_HASH
    trace_commitment: Hash32 = NO_HASH
    client: Address = NO_ADDRESS
    scheduler: Address = NO_ADDRESS
    node: Address = NO_ADDRESS
    opener: Address = NO_ADDRESS
    fee: Uint96 = 0
    unit: Uint96 = 0
    bond: Uint96 = 0
    locked: Uint96 = 0
    verifiers: tuple[Address, ...] = NO_ADDRESSES
    opinions: Bytes = b""
    excluded: tuple[Address, ...] = NO_ADDRESSES
    reviewers: tuple[Address, ...] = NO_ADDRESSES
    seats: Bytes = b""
    commitments: tuple[Hash32, ...] = NO_HASHES
    seed: Hash32 = NO_HASH
    drawer: Address = NO_ADDRESS
    committer: Address = NO_ADDRESS
    seeder: Address = NO_ADDRESS


@dataclass(frozen=True, slots=True)
class Reveal:
    """What a reviewer shows, its tiles in the clear; absent: opinion NONE. ``reveals`` packs it for the Court."""

    root: Hash32 = NO_HASH
    opinion: Uint8 = 0
    score: Uint32 = 0
    spread: Uint32 = 0
    salt: Hash32 = NO_HASH
    tiles: Bytes = b""
    siblings: tuple[Hash32, ...] = NO_HASHES


@dataclass(frozen=True, slots=True)
class NodeReveal:
    """What the node of a case shows; absent: root zero."""

    root: Hash32 = NO_HASH
    salt: Hash32 = NO_HASH
    tiles: Bytes = b""
    siblings: tuple[Hash32, ...] = NO_HASHES


# ---------------------------------------------------------------------------------------------------------- summons


class SummonsKind(IntEnum):
    """What a scheduler is asked for on chain."""

    NONE = 0
    RESULTS = 1
    CHECK = 2


@dataclass(frozen=True, slots=True)
class SummonsState:
    """A summons on its way; Summons keeps its hash."""

    kind: SummonsKind
    segment: Uint8
    extended: bool
    deadline: Uint40
    offence_block: Uint64
    reference_block: Uint64
    order: Hash32
    execution_class: Hash32
    ends: Hash32
    results: Hash32
    named: Hash32
    secret: Hash32
    client: Address
    scheduler: Address
    summoner: Address
    passed_to: Address
    deposit: Uint96
    fee: Uint96


class Fault(IntEnum):
    """Why a party was convicted."""

    NONE = 0
    FALSE_RESULT = 1
    NOTHING_SHOWN = 2
    UNANSWERED = 3
    TWO_RESULTS = 4
    TWO_ROWS = 5
    TWO_VERDICTS = 6
    TWO_ADMISSIONS = 7
    TWO_DRAWS = 8
    WRONG_NODES = 9
    WRONG_BETA = 10
    HEADS_APART = 11
    PROMISE_BROKEN = 12
    BY_PROOF = 13
    POOLED = 14


# -------------------------------------------------------------------------------------------------------------- log


@dataclass(frozen=True, slots=True)
class LogCounts:
    """What one entry of a scheduler's log counts."""

    orders: Uint32
    positions: Uint64
    drawn: Uint32
    checked: Uint32
    rejected: Uint32
    unrevealed: Uint32
    fees: Uint96
