"""Events of a task's life (ITrothTasks.sol, ITrothSettlement.sol, ITrothEquivocation.sol)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.events.log import LogMeta
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class TaskOpened:
    """The fee is locked; ``escrow`` is the client's free balance after it. ``ends`` as in ``task.Terms``."""

    task_id: Hash32
    client: Address
    scheduler: Address
    execution_class: Hash32
    request_hash: Hash32
    fee: int
    reference_block: int
    ends: Hash32
    escrow: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskAssigned:
    """Parties drawn, c + k per segment, with the VRF output and proof of each segment."""

    task_id: Hash32
    parties: tuple[Address, ...]
    betas: tuple[Hash32, ...]
    proofs: tuple[bytes, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class InferenceCommitted:
    """An inferencer posted its root itself."""

    task_id: Hash32
    inferencer: Address
    segment: int
    attempt: int
    positions: int
    root: Hash32
    output_hash: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class VerificationCommitted:
    """A verifier posted its commitment itself."""

    task_id: Hash32
    verifier: Address
    segment: int
    commitment: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskCommitted:
    """All roots and at least a quorum of commitments stand; ``posts`` as in ``task.Progress``."""

    task_id: Hash32
    attempt: int
    positions: int
    output_hash: Hash32
    inferencers: tuple[Address, ...]
    posts: tuple[Hash32, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskSampled:
    """The seed picks the tiles to open."""

    task_id: Hash32
    seed: Hash32
    proof: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TraceRevealed:
    """An opening was shown by a call of its own. A settlement needs its ``tiles`` (none in an exact class)."""

    task_id: Hash32
    party: Address
    segment: int
    root: Hash32
    verdict: bool
    tiles: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskSettled:
    """Decided. Per segment its outcome, and bit masks over the verifiers: verdict true, in the cluster, valid."""

    task_id: Hash32
    outcome: Outcome
    segment_outcomes: tuple[Outcome, ...]
    verdicts: tuple[int, ...]
    clusters: tuple[int, ...]
    valid: tuple[int, ...]
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskAborted:
    """Given up by its scheduler before any commitment counted."""

    task_id: Hash32
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class TaskExpired:
    """Its scheduler missed a deadline in ``phase``."""

    task_id: Hash32
    phase: Phase
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EquivocationProven:
    """``signer`` signed two rows for one position."""

    task_id: Hash32
    signer: Address
    reporter: Address
    segment: int
    attempt: int
    position: int
    meta: LogMeta


TaskEvent = (
    TaskOpened
    | TaskAssigned
    | InferenceCommitted
    | VerificationCommitted
    | TaskCommitted
    | TaskSampled
    | TraceRevealed
    | TaskSettled
    | TaskAborted
    | TaskExpired
    | EquivocationProven
)
