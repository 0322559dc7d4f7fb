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
class GroupEntry:
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
