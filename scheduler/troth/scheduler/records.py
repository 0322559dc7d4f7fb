"""The steps of a task as they are journalled, and the task as its steps tell it.

Each record is written before or after exactly one thing that happens in the world, so that whatever record is the
last one says what may have happened since. `recovery` reads that off.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Record(msgspec.Struct, frozen=True, tag_field="step", tag=str.lower):
    """One step; the class name in lower case is its name in the journal."""


class Received(_Record, frozen=True):
    """The order was checked and drawn; nothing is on chain. All a restart needs to go on is here.

    `order` holds the seven fields of the EIP-712 order. `parties` are, per segment, c candidates and then k verifiers.
    """

    execution_class: bytes
    request_hash: bytes
    scheduler: str
    max_fee: str
    deadline: int
    reference_block: int
    nonce: int
    signature: bytes
    client: str
    fee: str
    request: bytes
    salt: bytes
    ends: tuple[int, ...]
    alphas: tuple[bytes, ...]
    betas: tuple[bytes, ...]
    proofs: tuple[bytes, ...]
    parties: tuple[tuple[str, ...], ...]


class Opening(_Record, frozen=True):
    """The opening transaction is about to be sent."""


class Opened(_Record, frozen=True):
    """The fee is locked."""

    transaction: bytes
    block: int
    gas: int


class Generating(_Record, frozen=True):
    """An attempt starts; `inferencers` is the candidate index per segment."""

    attempt: int
    inferencers: tuple[int, ...]


class Generated(_Record, frozen=True):
    """The last token was emitted, and every row is on stable storage."""

    attempt: int
    inferencers: tuple[int, ...]
    tokens: tuple[int, ...]
    finished: Literal["stop", "length"]


class Verifying(_Record, frozen=True):
    """The verifiers are at work."""


class SegmentPosts(msgspec.Struct, frozen=True):
    """What one segment posts, with signatures: the root, then k commitments, empty where a verifier is silent."""

    inferencer: int
    root: bytes
    root_signature: bytes
    commitments: tuple[bytes, ...]
    signatures: tuple[bytes, ...]


class Committing(_Record, frozen=True):
    """The commitments are signed; the transaction with them is about to be sent."""

    attempt: int
    positions: int
    output_hash: bytes
    segments: tuple[SegmentPosts, ...]


class Committed(_Record, frozen=True):
    """The commitments are on chain at `block`; its hash enters the sample."""

    transaction: bytes
    block: int
    gas: int


class Sampled(_Record, frozen=True):
    """The sample was posted alone, because an opening is missing."""

    transaction: bytes
    block: int
    gas: int


class Settling(_Record, frozen=True):
    """The openings are there; the transaction with them is about to be sent."""


class Settled(_Record, frozen=True):
    """The task has an outcome on chain."""

    transaction: bytes
    block: int
    gas: int
    outcome: str


class Aborting(_Record, frozen=True):
    """The task is given up; the refunding transaction is about to be sent."""

    code: str
    message: str


class Aborted(_Record, frozen=True):
    """The client has its fee back."""

    transaction: bytes
    block: int
    gas: int


class Failed(_Record, frozen=True):
    """The task ended without ever touching the client's money, or beyond this scheduler's reach."""

    code: str
    message: str
    charged: bool


class Reopened(_Record, frozen=True):
    """A reorganisation has taken the end of the task back: it is under way again."""


Record = (
    Received
    | Opening
    | Opened
    | Generating
    | Generated
    | Verifying
    | Committing
    | Committed
    | Sampled
    | Settling
    | Settled
    | Aborting
    | Aborted
    | Failed
    | Reopened
)
FINAL = (Settled, Aborted, Failed)


def step_name(record: Record) -> str:
    """Name of a record in the journal and in receipts."""
    return type(record).__name__.lower()
