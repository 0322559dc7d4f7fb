"""One task on the chain, from its order to the end of its review, with every party's movements."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.disputes.game import disputes, who_disputes
from benchmarks.disputes.network import LAYERS, POSITIONS, UNIT, Network
from benchmarks.disputes.rules import CLIENT, Conduct, First, first_round, vote
from benchmarks.disputes.scenarios import Scenario
from benchmarks.disputes.traces import Trace, make
from troth.protocol import assignment, calls
from troth.protocol.contract_types import ABSENT, NO_PROOF, CommitSubmission, Opening, Settled, VrfProof
from troth.protocol.contract_types import join_signatures, pack_inferencers
from troth.protocol.events import (
    BondReturned,
    Credited,
    EscrowReleased,
    Event,
    ReviewAssigned,
    ReviewSettled,
    Slashed,
    TaskAssigned,
    TaskCommitted,
    TaskDisputed,
    TaskOpened,
    TaskSampled,
    TaskSettled,
)
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import class_id, fee, task_id, verdict_commitment
from troth.protocol.review import draw_alpha, draw_reviewers, review_id, review_task, settled_by
from troth.protocol.settlement import Outcome, Party
from troth.protocol.task import Phase, Task, pack_ends
from troth.protocol.task_progress import advance, opened
from troth.protocol.typed_data import sign, struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, Order, TraceRoot, VerdictCommitment

Sent = tuple[Address, calls.Call]


@dataclass(slots=True)
class Play:
    """A task of a scenario. ``conducts`` are those of its verifiers, ``reviewing`` those of its reviewers."""

    network: Network
    scenario: Scenario
    conducts: tuple[Conduct, ...]
    order: Order
    reviewing: tuple[Conduct, ...]
    task_id: Hash32 = ZERO_HASH
    task: Task | None = None
    settled: Settled | None = None
    review: Task | None = None
    traces: dict[str, Trace] = field(default_factory=dict)
    result: ReviewSettled | None = None
    disputer: int | None = None
    moved: defaultdict[Address, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def review_id(self) -> Hash32:
        """Of its one segment."""
        return review_id(self.task_id, 0)

    @property
    def first(self) -> First:
        """What the rules say of the first round."""
        return first_round(self.scenario.inferencer_honest, self.conducts)

    @property
    def parties(self) -> tuple[Address, ...]:
        """The inferencer, then the verifiers."""
        assert self.task is not None
        return self.task.progress.parties

    def units(self, party: int) -> float:
        """What the contract moved to or from a party, or the client."""
        account = self.network.client.address if party == CLIENT else self.parties[party]
        return self.moved[account] / UNIT

    def note(self, event: Event) -> None:
        """Follow one event of the task or of its review."""
        self._count(event)
        if isinstance(event, TaskOpened):
            self.task = opened(event, self.network.rules.candidates)
        elif isinstance(event, TaskDisputed):
            assert self.task is not None
            self.review = review_task(self.task, 0, event.disputer, event.bond, event.meta.block)
        elif isinstance(event, ReviewAssigned):
            assert self.review is not None
            self.review = _assigned(self.review, event)
        elif isinstance(event, ReviewSettled):
            self.result = event
        elif isinstance(event, TaskAssigned | TaskCommitted | TaskSampled | TaskSettled):
            self._advance(event)

    def _advance(self, event: TaskAssigned | TaskCommitted | TaskSampled | TaskSettled) -> None:
        if event.task_id == self.task_id:
            assert self.task is not None
            self.task = advance(self.task, event)
            if isinstance(event, TaskSettled):
                self.settled = settled_by(event)
        else:
            assert self.review is not None
            self.review = advance(self.review, event)

    def _count(self, event: Event) -> None:
        match event:
            case Credited():
                self.moved[event.account] += event.amount
            case Slashed():
                self.moved[event.operator] -= event.amount
            case TaskOpened():
                self.moved[event.client] -= event.fee
            case EscrowReleased():
                self.moved[event.client] += event.amount
            case TaskDisputed():
                self.moved[event.disputer] -= event.bond
            case BondReturned():
                self.moved[event.disputer] += event.amount
            case _:
                pass


def place(network: Network, scenario: Scenario, source: random.Random, nonce: int, head: tuple[int, int]) -> Play:
    """An order whose verifiers and reviewers are drawn honest or hostile; ``head`` is block number and timestamp."""
    order = Order(
        *(class_id(network.rules), Hash32(keccak256(b"request %d" % nonce)), network.scheduler.address),
        *(fee(network.rules, 1), head[1] + 10**6, head[0], nonce, pack_ends((LAYERS,))),
    )
    own = () if scenario.seat is None else (scenario.seat,)
    drawn = _population(source, scenario.honest, network.rules.verifiers - len(own))
    reviewing = _population(source, scenario.honest, network.rules.reviewers)
    play = Play(network, scenario, scenario.conducts or own + drawn, order, scenario.reviewing or reviewing)
    play.task_id = task_id(order, network.chain.domain)
    return play


def _population(source: random.Random, honest: float, count: int) -> tuple[Conduct, ...]:
    return tuple(Conduct.HONEST if source.random() < honest else Conduct.HOSTILE for _ in range(count))


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
    assert play.task is not None and play.settled is not None
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
    assert play.task is not None and play.settled is not None and play.review is not None
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


def _assigned(review: Task, event: ReviewAssigned) -> Task:
    posts = (review.progress.posts[0], *(ZERO_HASH,) * (len(event.parties) - 1))
    changed = replace(
        review.progress, phase=Phase.ASSIGNED, phase_block=event.meta.block, parties=event.parties, posts=posts
    )
    return Task(review.terms, changed)
