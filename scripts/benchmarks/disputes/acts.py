"""The calls of a task's life, each with who sends it: order and posts, openings, dispute, reviewers, their openings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.disputes.game import disputes, who_disputes
from benchmarks.disputes.network import POSITIONS
from benchmarks.disputes.play import Play
from benchmarks.disputes.rules import CLIENT, Conduct, vote
from benchmarks.disputes.traces import Trace, make
from troth.protocol import assignment, calls
from troth.protocol.contract_types import (
    ABSENT,
    NO_PROOF,
    CommitSubmission,
    Opening,
    VrfProof,
    join_signatures,
    pack_inferencers,
)
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import verdict_commitment
from troth.protocol.review import draw_alpha, draw_reviewers
from troth.protocol.settlement import Outcome, Party
from troth.protocol.task import Task
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, TraceRoot, VerdictCommitment

Sent = tuple[Address, calls.Call]


def open_and_commit(play: Play) -> Sent:
    """The order, the draw, and everybody's posts."""
    network, order = play.network, play.order
    alpha = assignment.assignment_alpha(
        *(network.chain.domain, play.task_id, 0),
        group_size=len(network.nodes),
        reference_block=order.reference_block,
    )
    proof, beta = network.proof(alpha)
    parties = assignment.draw(beta, network.members, network.rules.parties)
    label = b"true" if play.scenario.inferencer_honest else b"cheat"
    trace = _trace(play, label, parties[0])
    output = _salt(play, "output")
    root = TraceRoot(play.task_id, 0, 0, POSITIONS, trace.root, output)
    posts, signatures = _commitments(play, play.task_id, root, parties[1:], play.conducts)
    signed = (sign(root, network.chain.domain, network.nodes[parties[0]].secret), *signatures)
    submission = CommitSubmission(
        0, POSITIONS, output, pack_inferencers((0,)), (trace.root, *posts), join_signatures(signed)
    )
    client = sign(order, network.chain.domain, network.client.secret)
    return network.scheduler.address, calls.open_and_commit(order, client, [proof], submission)


def settle(play: Play, block_hash: Hash32) -> Sent:
    """The openings, and in a tolerant class the sample's proof over the commit block's hash."""
    assert play.task is not None
    proof, seed = _sampled(play, play.task_id, play.task, block_hash)
    openings = _openings(play, play.task_id, play.parties, play.conducts, seed)
    return play.network.scheduler.address, calls.settle(play.task_id, play.task, proof, openings)


def dispute(play: Play) -> Sent | None:
    """The dispute of whoever disputes under the scenario's policy; anybody's if the round was undecided."""
    assert play.task is not None
    assert play.settled is not None
    policy, first = play.scenario.policy, play.first
    flags = [disputes(conduct, policy) for conduct in play.conducts]
    if play.scenario.seat is not None:
        flags[0] = play.scenario.seat_disputes
    client_would = policy.client and not play.scenario.inferencer_honest
    play.disputer = who_disputes(first, play.scenario.inferencer_disputes, flags, client_would)
    if play.disputer is None and first.outcome is not Outcome.INDETERMINATE:
        return None
    outsider = play.disputer is None or play.disputer == CLIENT
    sender = play.network.client.address if outsider else play.parties[play.disputer or 0]
    return sender, calls.dispute(play.task_id, play.task, play.settled, 0)


def commit_review(play: Play, block_hash: Hash32) -> Sent:
    """The reviewers' draw over the dispute's block, and their posts."""
    assert play.review is not None
    network, review = play.network, play.review
    alpha = draw_alpha(network.chain.domain, play.review_id, group_size=len(network.nodes), block_hash=block_hash)
    proof, beta = network.proof(alpha)
    reviewers = draw_reviewers(beta, network.members, play.parties, network.rules.reviewers)
    progress = review.progress
    root = TraceRoot(play.review_id, 0, progress.attempt, progress.positions, progress.posts[0], progress.output_hash)
    posts, signatures = _commitments(play, play.review_id, root, reviewers, play.reviewing)
    call = calls.commit_review(play.review_id, review, [proof], posts, join_signatures(tuple(signatures)))
    return network.scheduler.address, call


def settle_review(play: Play, block_hash: Hash32) -> Sent:
    """The reviewers' openings."""
    assert play.task is not None
    assert play.settled is not None
    assert play.review is not None
    proof, seed = _sampled(play, play.review_id, play.review, block_hash)
    openings = _openings(play, play.review_id, play.review.progress.parties, play.reviewing, seed)
    call = calls.settle_review(play.task_id, play.task, play.settled, 0, play.review, proof, openings)
    return play.network.scheduler.address, call


def _commitments(
    play: Play, identifier: Hash32, root: TraceRoot, voters: Sequence[Address], conducts: Iterable[Conduct]
) -> tuple[list[Hash32], list[bytes]]:
    posts, signatures = [], []
    for index, (voter, conduct) in enumerate(zip(voters, conducts, strict=True)):
        given = vote(conduct, index, play.scenario.inferencer_honest)
        if not given.committed:
            posts.append(ZERO_HASH)
            continue
        trace, verdict = _shown(play, given, voter)
        salt = _salt(play, voter)
        post = verdict_commitment(identifier, 0, voter, root=trace.root, verdict=verdict, salt=salt)
        message = VerdictCommitment(identifier, 0, root.attempt, post, struct_hash(root))
        posts.append(post)
        signatures.append(sign(message, play.network.chain.domain, play.network.nodes[voter].secret))
    return posts, signatures


def _openings(
    play: Play, identifier: Hash32, parties: Sequence[Address], conducts: Iterable[Conduct], seed: Hash32
) -> list[Opening]:
    rules = play.network.rules
    label = b"true" if play.scenario.inferencer_honest else b"cheat"
    claimed = _trace(play, label, parties[0]).opening(False, ZERO_HASH, seed, rules, b"")
    shown = [claimed]
    for index, (voter, conduct) in enumerate(zip(parties[1:], conducts, strict=True)):
        given = vote(conduct, index, play.scenario.inferencer_honest)
        if not given.committed:
            shown.append(ABSENT)
            continue
        trace, verdict = _shown(play, given, voter)
        shown.append(trace.opening(verdict, _salt(play, voter), seed, rules, claimed.tiles))
    return shown


def _shown(play: Play, given: Party, voter: Address) -> tuple[Trace, bool]:
    if given.revealed is None:
        raise ValueError("a party that never reveals would cost the run a reveal window")
    return _trace(play, given.revealed.root, voter), given.revealed.verdict


def _trace(play: Play, label: bytes, party: Address) -> Trace:
    if party not in play.traces:
        play.traces[party] = make(play.network, play.task_id, label, party)
    return play.traces[party]


def _sampled(play: Play, identifier: Hash32, task: Task, block_hash: Hash32) -> tuple[VrfProof, Hash32]:
    if play.network.rules.exact:
        return NO_PROOF, ZERO_HASH
    domain = play.network.chain.domain
    alpha = assignment.sample_alpha(domain, identifier, posts=task.progress.posts, block_hash=block_hash)
    return play.network.proof(alpha)


def _salt(play: Play, name: str) -> Hash32:
    return Hash32(keccak256(play.task_id + name.encode()))
