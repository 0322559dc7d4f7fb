"""What parties sign (EIP-712), as Signed.sol has it: every message is flat, and signed as it stands here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from troth.protocol.market.types import Bytes, Uint256
from troth.protocol.types import Address, Hash32, Uint8, Uint16, Uint32, Uint64, Uint96


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
