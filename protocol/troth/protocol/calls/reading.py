"""Task calls read back from a transaction's input: auditors take openings, roots and signatures from there."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.bindings.structs import from_abi
from troth.protocol.calls.call import decode_call
from troth.protocol.contract_types import CommitSubmission, Opening, Settled, VrfProof
from troth.protocol.errors import InvalidField
from troth.protocol.task import Task
from troth.protocol.types import Hash32, Order


@dataclass(frozen=True, slots=True)
class OpenAndCommitCall:
    """Input of ``openAndCommit``."""

    order: Order
    signature: bytes
    proofs: tuple[VrfProof, ...]
    submission: CommitSubmission


@dataclass(frozen=True, slots=True)
class OpenCall:
    """Input of ``open``."""

    order: Order
    signature: bytes


@dataclass(frozen=True, slots=True)
class CommitCall:
    """Input of ``commit``."""

    task_id: Hash32
    task: Task
    proofs: tuple[VrfProof, ...]
    submission: CommitSubmission


@dataclass(frozen=True, slots=True)
class RevealCall:
    """Input of ``reveal``."""

    task_id: Hash32
    task: Task
    segment: int
    party: int
    opening: Opening


@dataclass(frozen=True, slots=True)
class SettleCall:
    """Input of ``settle``; tiles as they travelled (``plain_openings`` undoes the XOR)."""

    task_id: Hash32
    task: Task
    proof: VrfProof
    openings: tuple[Opening, ...]


@dataclass(frozen=True, slots=True)
class CommitReviewCall:
    """Input of ``commitReview``."""

    review_id: Hash32
    review: Task
    proofs: tuple[VrfProof, ...]
    commitments: tuple[Hash32, ...]
    signatures: bytes


@dataclass(frozen=True, slots=True)
class SettleReviewCall:
    """Input of ``settleReview``; tiles as they travelled."""

    task_id: Hash32
    task: Task
    settled: Settled
    segment: int
    review: Task
    proof: VrfProof
    openings: tuple[Opening, ...]


TaskCall = OpenCall | OpenAndCommitCall | CommitCall | RevealCall | SettleCall | CommitReviewCall | SettleReviewCall
_TYPES: dict[str, type[TaskCall]] = {
    "open": OpenCall,
    "openAndCommit": OpenAndCommitCall,
    "commit": CommitCall,
    "reveal": RevealCall,
    "settle": SettleCall,
    "commitReview": CommitReviewCall,
    "settleReview": SettleReviewCall,
}


def read_task_call(data: bytes) -> TaskCall:
    """The call that ``data`` is; raises InvalidField if it is none of ``TaskCall`` or is malformed."""
    decoded = decode_call(data)
    kind = _TYPES.get(decoded.entry.name)
    if kind is None:
        raise InvalidField("This call carries no order, commitment or opening", decoded.entry.name, "Take another one.")
    return from_abi(kind, decoded.values)


def mask_tiles(tiles: bytes, inferencer: bytes) -> bytes:
    """Tiles XORed with the inferencer's, whose mostly zero bytes are cheap calldata; its own inverse.

    Without an inferencer's tiles they stay as they are.
    """
    if not inferencer:
        return tiles
    if len(tiles) != len(inferencer):
        raise InvalidField(
            "Tiles of two parties have one length", (len(tiles), len(inferencer)), "Open the same tiles."
        )
    number = int.from_bytes(tiles, "big") ^ int.from_bytes(inferencer, "big")
    return number.to_bytes(len(tiles), "big")


def plain_openings(openings: tuple[Opening, ...], per_segment: int) -> tuple[Opening, ...]:
    """Openings of ``settle`` with the XOR undone; ``per_segment`` is 1 + k."""
    plain = []
    for index, opening in enumerate(openings):
        first = openings[index - index % per_segment].tiles
        masked = index % per_segment and opening.tiles
        tiles = mask_tiles(opening.tiles, first) if masked else opening.tiles
        plain.append(Opening(opening.root, opening.verdict, opening.salt, tiles, opening.siblings))
    return tuple(plain)
