"""The folded past: the last state, each task's steps with the state before them, and what did not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from troth.audit.ledger import Ledger, broken_balance
from troth.audit.market.history import Contradiction
from troth.protocol.errors import ProtocolError
from troth.protocol.events import (
    Credited,
    EquivocationProven,
    EscrowReleased,
    Event,
    Log,
    LogMeta,
    ReviewEvent,
    ReviewSettled,
    Slashed,
    TaskEvent,
    parse_log,
)
from troth.protocol.fold import apply
from troth.protocol.state import State
from troth.protocol.types import Hash32

TaskBound = TaskEvent | Credited | Slashed | EscrowReleased | ReviewEvent
"""Events that name a task or a review."""


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a task or a review and the state in which it happened."""

    event: TaskBound
    before: State


@dataclass(frozen=True, slots=True)
class History:
    """``steps`` by id of task or review, also for ids that were never opened.

    A refund that a review brings about names the task, but is among the review's steps. ``contradictions`` are in the
    order of the chain.
    """

    state: State
    ledger: Ledger
    steps: Mapping[Hash32, tuple[Step, ...]]
    contradictions: tuple[Contradiction, ...]

    def reviews_of(self, task_id: Hash32) -> tuple[Hash32, ...]:
        """Ids of a task's reviews, in the order in which they began."""
        found = [review for review, record in self.state.reviews.items() if record.task_id == task_id]
        return tuple(sorted(found, key=lambda review: self.steps[review][0].event.meta))

    def with_reviews(self, task_id: Hash32) -> tuple[Step, ...]:
        """Steps of a task and of all its reviews."""
        return tuple(step for found in (task_id, *self.reviews_of(task_id)) for step in self.steps[found])


def read_history(logs: Iterable[Log]) -> History:
    """Fold ``logs``; stops at the first that cannot follow, since nothing after it would mean anything."""
    reader = _Reader()
    for log in logs:
        if not reader.take(log):
            break
    reader.close_transaction()
    steps = {task: tuple(found) for task, found in reader.steps.items()}
    return History(reader.state, reader.ledger, steps, tuple(reader.contradictions))


class _Reader:
    """The fold with its book-keeping."""

    def __init__(self) -> None:
        self.state = State()
        self.ledger = Ledger()
        self.steps: dict[Hash32, list[Step]] = {}
        self.contradictions: list[Contradiction] = []
        self.last: LogMeta | None = None
        self.reviewed: ReviewSettled | None = None

    def take(self, log: Log) -> bool:
        """Fold one log; False if it cannot follow."""
        if self.last is not None and (log.meta.block, log.meta.log_index) <= (self.last.block, self.last.log_index):
            return self._refuse(log.meta, "A log stands before or at the one that it follows")
        if self.last is not None and log.meta.transaction != self.last.transaction:
            self.close_transaction()
        try:
            event = parse_log(log)
            after = apply(event, self.state)
            ledger = self.ledger.after(event, self.state)
        # Beside the fold's own errors: numbers of no enumeration, indices outside a tuple, splits without a segment.
        except (ProtocolError, ValueError, LookupError, ArithmeticError) as error:
            return self._refuse(log.meta, f"The log cannot follow: {error}")
        self._note(event, log.meta)
        self.state, self.ledger, self.last = after, ledger, log.meta
        return True

    def _refuse(self, place: LogMeta, message: str) -> bool:
        self.contradictions.append(Contradiction(place, message))
        return False

    def _note(self, event: Event, place: LogMeta) -> None:
        broken = broken_balance(event, self.state)
        if broken is not None:
            self.contradictions.append(Contradiction(place, broken))
        if isinstance(event, ReviewSettled):
            self.reviewed = event
        if isinstance(event, TaskBound):
            self.steps.setdefault(self._subject(event), []).append(Step(event, self.state))

    def _subject(self, event: TaskBound) -> Hash32:
        """The task or review that an event is a step of."""
        if isinstance(event, ReviewEvent):
            return event.review_id
        if isinstance(event, EscrowReleased) and self.reviewed is not None:
            same = (event.meta.transaction, event.task_id)
            if same == (self.reviewed.meta.transaction, self.reviewed.task_id):
                return self.reviewed.review_id
        return event.task_id

    def close_transaction(self) -> None:
        """Whatever a transaction takes from one account it must have given to others by its end."""
        if self.ledger.in_transit and self.last is not None:
            message = f"The transaction moves {self.ledger.in_transit} wei more out of accounts than into accounts"
            self.contradictions.append(Contradiction(self.last, message))
            self.ledger = Ledger(self.ledger.paid_in, self.ledger.paid_out)


def equivocations(history: History) -> tuple[Step, ...]:
    """Every proven contradiction of signed rows, with the steps' states."""
    found = [step for steps in history.steps.values() for step in steps if isinstance(step.event, EquivocationProven)]
    return tuple(sorted(found, key=lambda step: (step.event.meta.block, step.event.meta.log_index)))
