"""From what the parties signed to the calls of the contract. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from troth.protocol import vrf
from troth.protocol.assignment import sample_alpha
from troth.protocol.calls import mask_tiles
from troth.protocol.contract_types import (
    CommitSubmission,
    Opening,
    VrfProof,
    join_signatures,
    pack_inferencers,
)
from troth.protocol.task import Task
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.protocol.vrf_hints import hints
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.records import Committing


def assignment_proofs(task: AdmittedTask, vrf_key: tuple[int, int]) -> tuple[VrfProof, ...]:
    """The assignment's proofs with the hints that make them cheap to check on chain."""
    return tuple(
        VrfProof(proof, tuple(hints(vrf_key, alpha, proof)))
        for alpha, proof in zip(task.alphas, task.assignment.proofs, strict=True)
    )


def submission(committing: Committing) -> CommitSubmission:
    """All posts of a task: per segment the root and k commitments, zero where a verifier is silent."""
    posts: list[Hash32] = []
    signatures: list[bytes] = []
    for segment in committing.segments:
        posts += [
            Hash32(segment.root),
            *(Hash32(commitment) if commitment else ZERO_HASH for commitment in segment.commitments),
        ]
        signatures += [segment.root_signature, *(signature for signature in segment.signatures if signature)]
    return CommitSubmission(
        attempt=committing.attempt,
        positions=committing.positions,
        output_hash=Hash32(committing.output_hash),
        inferencers=pack_inferencers(tuple(segment.inferencer for segment in committing.segments)),
        posts=tuple(posts),
        signatures=join_signatures(tuple(signatures)),
    )


def seated(
    posts: CommitSubmission, on_chain: Task, inferencers: Sequence[Address], drawn: Sequence[Sequence[Address]]
) -> CommitSubmission:
    """The posts, with every inferencer where it stands by now: a candidate that posted a root took the first place.

    Args:
        inferencers: who inferred, per segment.
        drawn: the candidates per segment as they were drawn, for a task that is not assigned on chain yet.
    """
    places = tuple(
        (on_chain.parties_of(segment) or drawn[segment]).index(inferencer)
        for segment, inferencer in enumerate(inferencers)
    )
    return replace(posts, inferencers=pack_inferencers(places))


def sample_proof(secret: bytes, domain: Domain, task_id: Hash32, task: Task, block_hash: Hash32) -> VrfProof:
    """The scheduler's proof over the posts and the hash of the commit block."""
    alpha = sample_alpha(domain, task_id, posts=task.progress.posts, block_hash=block_hash)
    proof = vrf.prove(secret, alpha)
    return VrfProof(proof, tuple(hints(vrf.public_key(secret), alpha, proof)))


def masked(openings: Sequence[Opening], per_segment: int) -> tuple[Opening, ...]:
    """Openings as `settle` takes them: verifiers' tiles XORed with the inferencer's of their segment."""
    result = []
    for index, opening in enumerate(openings):
        place = index % per_segment
        inferencer = openings[index - place].tiles
        tiles = mask_tiles(opening.tiles, inferencer) if place and opening.tiles else opening.tiles
        result.append(Opening(opening.root, opening.verdict, opening.salt, tiles, opening.siblings))
    return tuple(result)
