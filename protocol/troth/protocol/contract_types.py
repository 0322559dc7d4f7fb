"""Structs of the contract's calls that are no signed messages (TrothTypes.sol). Amounts in wei, windows in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, Hash32, Segment

SIGNATURE_BYTES = 65
REFERENCE_AGE = 200
"""Blocks that an order's reference block may lie back; a slice that was changed stays as long (Deployment.sol)."""


class Role(IntEnum):
    """What an operator address is registered as."""

    NONE = 0
    NODE = 1
    SCHEDULER = 2


@dataclass(frozen=True, slots=True)
class Parameters:
    """Fixed at deployment; see TrothTypes.sol for each window."""

    commit_window: int
    sample_window: int
    reveal_window: int
    dispute_window: int
    unbonding_period: int
    minimum_scheduler_stake: int
    reserve: Address


@dataclass(frozen=True, slots=True)
class Account:
    """Money and standing of an operator; ``exit_block`` 0 while bonded."""

    stake: int = 0
    credit: int = 0
    exit_block: int = 0
    role: Role = Role.NONE


@dataclass(frozen=True, slots=True)
class HostedSlice:
    """The layers [first, end) of a node, and the first block in which it may change them; all 0 for other addresses."""

    execution_class: Hash32
    first: int
    end: int
    kept_until: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What settlement needs to know of a class and its model."""

    unit: int
    hidden_size: int
    layers: int
    dtype: int
    exact: bool
    mantissa_bits: int
    steps: int
    theta: int
    tiles: int
    candidates: int
    verifiers: int
    reviewers: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settled task keeps for a dispute: per segment its outcome, and bit masks over the verifiers.

    ``valid``: opened a verdict that its own trace does not contradict; 0 if the inferencer opened nothing.
    """

    outcomes: tuple[int, ...]
    verdicts: tuple[int, ...]
    clusters: tuple[int, ...]
    valid: tuple[int, ...]
    settled_block: int


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """A slice [first, end) of a class's model, and the segments inside it whose groups the node joins."""

    operator: Address
    payout: Address
    execution_class: Hash32
    first: int
    end: int
    segments: tuple[Segment, ...]
    endpoint: str
    tls_key_hash: Hash32


@dataclass(frozen=True, slots=True)
class SchedulerRegistration:
    """A scheduler with its P-256 VRF key."""

    operator: Address
    payout: Address
    vrf_x: int
    vrf_y: int
    endpoint: str
    tls_key_hash: Hash32


@dataclass(frozen=True, slots=True)
class VrfProof:
    """81 bytes of RFC 9381 and the hints with which the contract checks them cheaply."""

    proof: bytes
    hints: tuple[int, ...]


NO_PROOF = VrfProof(b"", ())
"""For calls in which nothing is left to prove: the task is sampled already, or its class is exact."""


@dataclass(frozen=True, slots=True)
class CommitSubmission:
    """All posts of a task; ``inferencers`` and ``signatures`` as packed by the functions below."""

    attempt: int
    positions: int
    output_hash: Hash32
    inferencers: Hash32
    posts: tuple[Hash32, ...]
    signatures: bytes


@dataclass(frozen=True, slots=True)
class Opening:
    """What a party shows of its trace; the default is an absent one."""

    root: Hash32 = Hash32(bytes(32))  # noqa: RUF009 -- NewType of an immutable value
    verdict: bool = False
    salt: Hash32 = Hash32(bytes(32))  # noqa: RUF009 -- as above
    tiles: bytes = b""
    siblings: tuple[Hash32, ...] = ()


ABSENT = Opening()


def pack_inferencers(candidates: tuple[int, ...]) -> Hash32:
    """Byte s is the index of the candidate that inferred segment s."""
    if len(candidates) > 32 or not all(0 <= index <= 255 for index in candidates):
        raise InvalidField("At most 32 segments, each with a candidate index below 256", candidates, "Check the chain.")
    return Hash32(bytes(candidates).ljust(32, b"\0"))


def join_signatures(signatures: tuple[bytes, ...]) -> bytes:
    """Signatures of the posts that are not zero, in the posts' order."""
    for signature in signatures:
        if len(signature) != SIGNATURE_BYTES:
            raise InvalidField("A signature has 65 bytes: r, s, v", f"{len(signature)} bytes", "Sign the post again.")
    return b"".join(signatures)
