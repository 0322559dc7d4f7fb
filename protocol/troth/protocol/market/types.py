"""The structs of MarketTypes.sol as frozen types, in the order of their Solidity fields.

An annotation carries the Solidity type, so that EIP-712 and ``abi.encode`` are derived from the dataclass itself. Money
is in the asset's smallest unit, windows are in blocks, prices are per 10^9 positions. What is signed is signed as it
stands here: every message is flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from troth.protocol.types import (
    ZERO_ADDRESS,
    ZERO_HASH,
    Address,
    Hash32,
    Segment,
    Solidity,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Uint96,
)

Uint40 = Annotated[int, Solidity("uint40")]
Uint256 = Annotated[int, Solidity("uint256")]
Bytes = Annotated[bytes, Solidity("bytes")]

NO_HASH = ZERO_HASH
NO_ADDRESS = ZERO_ADDRESS
LATEST = 1 << 62
"""A block after all that there will be: what holds now."""
NO_HASHES: tuple[Hash32, ...] = ()
NO_ADDRESSES: tuple[Address, ...] = ()


# ------------------------------------------------------------------------------------------------------- deployment


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is fixed for a deployment; ``lag`` is D, ``gas_price`` the ceiling in asset units per 10^9 gas."""

    asset: Address
    lag: Uint32
    summons_window: Uint32
    lookahead: Uint32
    draw_window: Uint32
    commit_window: Uint32
    reveal_window: Uint32
    claim_delay: Uint32
    answer_window: Uint32
    close_delay: Uint32
    unbonding: Uint32
    seasoning: Uint32
    reference_age: Uint32
    suspension_pause: Uint32
    scheduler_stake: Uint96
    gas_price: Uint96
    weights: Address
    prover: Address


@dataclass(frozen=True, slots=True)
class Contracts:
    """The contracts of a deployment; ``bank`` is the verifying contract of every signature."""

    bank: Address
    registry: Address
    court: Address
    summons: Address
    evidence: Address
    log: Address
    lens: Address
    docket: Address
    judgement: Address
    classes: Address
    leaves: Address
    proofs: Address


# ------------------------------------------------------------------------------------------------------------ money


class PotKind(IntEnum):
    """Where money can be; every unit that the Bank holds is in exactly one pot."""

    CREDIT = 0
    STAKE = 1
    LOCKED = 2
    TAB = 3
    BOND = 4
    BURNT = 5


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement between two pots; an address is the lower 160 bits of its id."""

    from_kind: PotKind
    from_id: Hash32
    to_kind: PotKind
    to_id: Hash32
    amount: Uint96


@dataclass(frozen=True, slots=True)
class Tab:
    """A one-way payment channel under one tab key; its id is the hash of these three."""

    payer: Address
    payee: Address
    key: Address


@dataclass(frozen=True, slots=True)
class TabState:
    """What the Bank stores of a tab; ``redeemed`` never resets, so that no old voucher replays."""

    balance: Uint96 = 0
    redeemed: Uint96 = 0
    closes_at: Uint40 = 0
    known: bool = False


@dataclass(frozen=True, slots=True)
class Voucher:
    """The payer's latest word on a tab: bit i of ``exceptions`` is number ``acknowledged_through`` - i."""

    tab: Hash32
    spent: Uint96
    authorised: Uint96
    sequence: Uint64
    acknowledged_through: Uint64
    exceptions: Uint256


@dataclass(frozen=True, slots=True)
class TabConsent:
    """The tab key agrees to be the key of this payer's tab with this payee."""

    payer: Address
    payee: Address


@dataclass(frozen=True, slots=True)
class Claim:
    """Leaves that were authorised but not acknowledged: bit i of ``exceptions`` leaves number ``first`` + i out."""

    first: Uint64
    last: Uint64
    exceptions: Uint256
    total: Uint96
    root: Hash32


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim on its way; the Bank keeps its hash."""

    claim: Claim
    voucher: Voucher
    owed: Uint96
    settles_at: Uint40
    claimer: Address


class LeafKind(IntEnum):
    """Which work a claimed leaf is: a client's order, or a scheduler's promise to a node."""

    ORDER = 0
    PROMISE = 1


# -------------------------------------------------------------------------------------------- parties and classes


class Role(IntEnum):
    """What an operator is registered as."""

    NONE = 0
    NODE = 1
    SCHEDULER = 2


@dataclass(frozen=True, slots=True)
class ExecutionClass:
    """How a model is run, compared, priced and judged. Cuts and rates are in millionths, shares in basis points."""

    model: Hash32
    name: str
    dtype: Uint8
    exact: bool
    mantissa_bits: Uint8
    steps: Uint16
    theta: Uint16
    tiles: Uint8
    candidates: Uint8
    verifiers: Uint8
    reviewers: Uint8
    check_price: Uint96
    fee_cap: Uint96
    least_check_rate: Uint32
    honest_share: Uint16
    penalty: Uint96
    seat: Uint96
    seat_cap: Uint16
    state_cut: Uint32
    margin_cut: Uint32
    second_cut: Uint32
    pool_limit: Uint16
    pool_window: Uint32
    calibration: Hash32


@dataclass(frozen=True, slots=True)
class Rules:
    """What the contracts keep of a class and its model."""

    penalty: Uint96
    seat: Uint96
    seat_cap: Uint16
    dtype: Uint8
    exact: bool
    mantissa_bits: Uint8
    tiles: Uint8
    verifiers: Uint8
    reviewers: Uint8
    check_price: Uint96
    fee_cap: Uint96
    least_check_rate: Uint32
    theta: Uint16
    steps: Uint16
    second_cut: Uint32
    pool_limit: Uint16
    pool_window: Uint32
    hidden_size: Uint32
    layers: Uint16
    candidates: Uint8


@dataclass(frozen=True, slots=True)
class Ask:
    """What a node asks for its segment, or the most that it may ask."""

    prompt: Uint64 = 0
    cached: Uint64 = 0
    written: Uint64 = 0


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """A slice [first, end) of a class's model, and one or two segments inside it whose groups the node joins."""

    operator: Address
    payout: Address
    execution_class: Hash32
    first: Uint8
    end: Uint8
    segments: tuple[Segment, ...]
    asks: tuple[Ask, ...]
    stake: Uint96
    endpoint: str
    tls_key_hash: Hash32


@dataclass(frozen=True, slots=True)
class SchedulerRegistration:
    """A scheduler with its P-256 VRF key, which never changes."""

    operator: Address
    payout: Address
    vrf_x: Uint256
    vrf_y: Uint256
    stake: Uint96
    endpoint: str
    tls_key_hash: Hash32


@dataclass(frozen=True, slots=True)
class Consent:
    """An operator's agreement to be registered by ``owner``."""

    owner: Address
    operator: Address


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of a group at one place of its compact array, from a block on; 0 seats while suspended."""

    operator: Address = NO_ADDRESS
    from_block: Uint32 = 0
    since: Uint32 = 0
    seats: Uint16 = 0
    settled: Uint16 = 0


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """What is drawn from a group; ``draws`` states the rule. ``hints``: four bytes per look-up into the past."""

    execution_class: Hash32
    first: Uint8
    end: Uint8
    block_number: Uint64
    seed: Hash32
    count: Uint16
    seasoned: bool
    distinct: bool
    excluded: tuple[Address, ...]
    bound: Ask
    hints: Bytes = b""


# ------------------------------------------------------------------------------------------ what parties sign (flat)


@dataclass(frozen=True, slots=True)
class Order:
    """A client's order, signed by its tab key; its digest is the order's id everywhere.

    ``draw_hash`` and ``tiles_hash`` are keccak256 of two fresh secrets: the lottery's, and that of a check's tiles.
    """

    tab: Hash32
    sequence: Uint64
    execution_class: Hash32
    request_hash: Hash32
    ends: Hash32
    prompt_price: Uint64
    cached_price: Uint64
    written_price: Uint64
    node_share: Uint16
    max_fee: Uint96
    check_rate: Uint32
    deadline: Uint64
    reference_block: Uint64
    draw_hash: Hash32
    tiles_hash: Hash32
    reply_key: Hash32


@dataclass(frozen=True, slots=True)
class Admission:
    """The scheduler takes an order and names who serves it."""

    order: Hash32
    nodes: Hash32
    block_number: Uint64


class Work(IntEnum):
    """What a promise is for."""

    INFERENCE = 0
    CHECK = 1


@dataclass(frozen=True, slots=True)
class Promise:
    """The scheduler owes a node for work on an order, signed by the key of their tab before the node begins."""

    tab: Hash32
    sequence: Uint64
    order: Hash32
    segment: Uint8
    work: Uint8
    reference_block: Uint64
    prompt_ask: Uint64
    cached_ask: Uint64
    written_ask: Uint64
    price: Uint96


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a node's trace, chained to the row before it."""

    order: Hash32
    segment: Uint8
    position: Uint32
    row_hash: Hash32
    previous: Hash32


@dataclass(frozen=True, slots=True)
class Result:
    """What a node signs at the end of its part; only this can convict it."""

    order: Hash32
    segment: Uint8
    input_head: Hash32
    output_head: Hash32
    prompt: Uint32
    cached: Uint32
    written: Uint32
    trace_commitment: Hash32
    output_hash: Hash32


@dataclass(frozen=True, slots=True)
class Draw:
    """The scheduler's word after the answer, from which the lag runs."""

    order: Hash32
    results: Hash32
    beta: Hash32
    block_number: Uint64


@dataclass(frozen=True, slots=True)
class TraceCommitment:
    """A verifier's hidden trace root, signed before it sees the node's rows.

    ``result`` is the struct hash of what it will judge: who is shown another result commits once more.
    """

    order: Hash32
    segment: Uint8
    result: Hash32
    commitment: Hash32


class Opinion(IntEnum):
    """What a verifier or a reviewer says; CANNOT_TELL costs nobody anything."""

    NONE = 0
    ACCEPT = 1
    REJECT = 2
    CANNOT_TELL = 3
    MISSING_PROMPT = 4
    MISSING_INPUT = 5
    MISSING_TRACE = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's verdict over one result; ``locks``: it locks L so that the node is suspended."""

    order: Hash32
    segment: Uint8
    result: Hash32
    commitment: Hash32
    opinion: Uint8
    locks: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature of 64 bytes (EIP-2098): ``vs`` is s with the parity in its uppermost bit."""

    r: Hash32
    vs: Hash32


@dataclass(frozen=True, slots=True)
class Word:
    """What a verdict says where order, segment and result are known, as a summons' answer shows it."""

    commitment: Hash32
    opinion: Uint8
    locks: bool
    signature: Signature


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The scheduler promises that a leaf is in its log, in this entry or an earlier one."""

    order: Hash32
    leaf: Hash32
    entry: Uint64


@dataclass(frozen=True, slots=True)
class ReviewCommitment:
    """A reviewer's hidden reveal in a case."""

    case_id: Hash32
    commitment: Hash32


@dataclass(frozen=True, slots=True)
class VrfProof:
    """81 bytes of RFC 9381, and the hints with which the contract checks them cheaply."""

    proof: Bytes
    hints: tuple[Uint256, ...] = ()


@dataclass(frozen=True, slots=True)
class SignedOrder:
    """An order as a case, a summons or a conviction needs it: with the three accounts of its tab."""

    order: Order
    client: Address
    scheduler: Address
    key: Address
    signature: Bytes


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
