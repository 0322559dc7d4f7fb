"""Calls of a segment's second verification. Who may call what, and when, is in ITrothDisputes.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.calls.call import Call, build
from troth.protocol.contract_types import Opening, Settled, VrfProof
from troth.protocol.task import Task
from troth.protocol.types import Hash32


def dispute(task_id: Hash32, task: Task, settled: Settled, segment: int) -> Call:
    """Has a settled segment verified again; ``task`` as it was when it was settled."""
    return build("dispute", task_id, task, settled, segment)


def assign_review(review_id: Hash32, review: Task, proof: VrfProof) -> Call:
    """Anyone: draws the reviewers."""
    return build("assignReview", review_id, review, proof)


def commit_review(
    review_id: Hash32, review: Task, proofs: Sequence[VrfProof], commitments: Sequence[Hash32], signatures: bytes
) -> Call:
    """Anyone: the reviewers' commitments with their signatures; one proof if they are not drawn yet, else none."""
    return build("commitReview", review_id, review, list(proofs), list(commitments), signatures)


def settle_review(  # noqa: PLR0917 -- the contract's own arguments
    task_id: Hash32,
    task: Task,
    settled: Settled,
    segment: int,
    review: Task,
    proof: VrfProof,
    openings: Sequence[Opening],
) -> Call:
    """Anyone: decides the review; the inferencer's opening first, reviewers' tiles XORed with it."""
    return build("settleReview", task_id, task, settled, segment, review, proof, list(openings))


def close_review(review_id: Hash32, review: Task) -> Call:
    """Anyone, after a deadline that the scheduler missed."""
    return build("closeReview", review_id, review)
