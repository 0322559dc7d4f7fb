"""Calls that move a task on. Who may call what, and when, is in ITrothTasks.sol and ITrothSettlement.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.calls.call import Call, build
from troth.protocol.contract_types import CommitSubmission, Opening, VrfProof
from troth.protocol.task import Task, terms_hash
from troth.protocol.types import Hash32, Order, Row, TraceRoot, VerdictCommitment


def open_task(order: Order, signature: bytes) -> Call:
    """Scheduler: locks the fee; ``signature`` is the client's over the order."""
    return build("open", order, signature)


def open_and_commit(
    order: Order,
    signature: bytes,
    proofs: Sequence[VrfProof],
    submission: CommitSubmission,
) -> Call:
    """Scheduler: opens, assigns and commits in one transaction."""
    return build("openAndCommit", order, signature, list(proofs), submission)


def assign(task_id: Hash32, task: Task, proofs: Sequence[VrfProof]) -> Call:
    """Anyone: derives the parties from the scheduler's proofs, one per segment."""
    return build("assign", task_id, task, list(proofs))


def commit(task_id: Hash32, task: Task, proofs: Sequence[VrfProof], submission: CommitSubmission) -> Call:
    """Anyone: all posts with their signatures; no ``proofs`` if the task is assigned already."""
    return build("commit", task_id, task, list(proofs), submission)


def commit_inference(task: Task, posted: TraceRoot) -> Call:
    """A candidate posts its own root; the output hash is zero except at the last segment."""
    return build(
        "commitInference",
        posted.task_id,
        terms_hash(task.terms),
        task.progress,
        posted.segment,
        posted.attempt,
        posted.positions,
        posted.root,
        posted.output_hash,
    )


def commit_verification(task: Task, posted: VerdictCommitment) -> Call:
    """A verifier posts its own commitment."""
    terms = terms_hash(task.terms)
    return build("commitVerification", posted.task_id, terms, task.progress, posted.segment, posted.commitment)


def seal(task_id: Hash32, task: Task) -> Call:
    """Anyone, after half the commit window: closes the commit phase with a quorum."""
    return build("seal", task_id, task)


def sample(task_id: Hash32, task: Task, proof: VrfProof) -> Call:
    """Scheduler, tolerant classes: the seed that picks tiles."""
    return build("sample", task_id, task, proof)


def reveal(task_id: Hash32, task: Task, segment: int, party: int, opening: Opening) -> Call:
    """Anyone who holds an opening; ``party`` 0 is the inferencer; tiles are plain."""
    return build("reveal", task_id, task, segment, party, opening)


def settle(task_id: Hash32, task: Task, proof: VrfProof, openings: Sequence[Opening]) -> Call:
    """Anyone: decides, pays and slashes; 1 + k ``openings`` per segment, verifiers' tiles XORed (``mask_tiles``)."""
    return build("settle", task_id, task, proof, list(openings))


def abort(task_id: Hash32, task: Task) -> Call:
    """Scheduler: gives the task up before there are commitments."""
    return build("abort", task_id, task)


def close(task_id: Hash32, task: Task) -> Call:
    """Anyone, after a deadline that the scheduler missed."""
    return build("close", task_id, task)


def prove_equivocation(first: Row, first_signature: bytes, second: Row, second_signature: bytes) -> Call:
    """Anyone: two different rows that one party signed for one position."""
    return build("proveEquivocation", first, first_signature, second, second_signature)
