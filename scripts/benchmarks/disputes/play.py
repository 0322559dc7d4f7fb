"""One task on the chain, as its events tell it, with every party's movements."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace

from benchmarks.disputes.network import LAYERS, UNIT, Network
from benchmarks.disputes.rules import CLIENT, Conduct, First, first_round
from benchmarks.disputes.scenarios import Scenario
from benchmarks.disputes.traces import Trace
from troth.protocol.contract_types import Settled
from troth.protocol.ends import pack_ends
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
from troth.protocol.identifiers import class_id, fee, task_id
from troth.protocol.review import review_id, review_task, settled_by
from troth.protocol.task import Phase, Task
from troth.protocol.task_progress import advance, opened
from troth.protocol.types import ZERO_HASH, Address, Hash32, Order


@dataclass(slots=True)
class Play:
    """A task of a scenario. ``conducts`` are those of its verifiers, ``reviewing`` those of its reviewers.

    ``moved`` is wei by account, ``before`` the same when the review began.
    """

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
    before: dict[Address, int] = field(default_factory=dict)

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
        if isinstance(event, TaskDisputed):
            self.before = dict(self.moved)
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
        execution_class=class_id(network.rules),
        request_hash=Hash32(keccak256(b"request %d" % nonce)),
        scheduler=network.scheduler.address,
        max_fee=fee(network.rules, 1),
        deadline=head[1] + 10**6,
        reference_block=head[0],
        nonce=nonce,
        ends=pack_ends((LAYERS,)),
    )
    own = () if scenario.seat is None else (scenario.seat,)
    drawn = _population(source, scenario.honest, network.rules.verifiers - len(own))
    reviewing = _population(source, scenario.honest, network.rules.reviewers)
    play = Play(network, scenario, scenario.conducts or own + drawn, order, scenario.reviewing or reviewing)
    play.task_id = task_id(order, network.chain.domain)
    return play


def _population(source: random.Random, honest: float, count: int) -> tuple[Conduct, ...]:
    return tuple(Conduct.HONEST if source.random() < honest else Conduct.HOSTILE for _ in range(count))


def _assigned(review: Task, event: ReviewAssigned) -> Task:
    posts = (review.progress.posts[0], *(ZERO_HASH,) * (len(event.parties) - 1))
    changed = replace(
        review.progress, phase=Phase.ASSIGNED, phase_block=event.meta.block, parties=event.parties, posts=posts
    )
    return Task(review.terms, changed)
