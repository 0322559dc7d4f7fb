"""Watches for disputes of this scheduler's tasks and drives their reviews; escalates what was left undecided.

A review must go on whoever asked for it: a scheduler that leaves one lying is slashed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from troth.chain.errors import ChainError
from troth.overlay.errors import OverlayError
from troth.overlay.logs import task_bound
from troth.protocol.calls import dispute
from troth.protocol.errors import ProtocolError
from troth.protocol.events import TaskDisputed
from troth.protocol.identifiers import group_id
from troth.protocol.review import fresh, review_id
from troth.protocol.settlement import Outcome
from troth.protocol.state import State, TaskRecord
from troth.protocol.types import Hash32
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.desk import Desk
from troth.scheduler.errors import SchedulerError
from troth.scheduler.metrics import Metrics
from troth.scheduler.release import release_from
from troth.scheduler.reviewing import Reviewing
from troth.scheduler.story import Story

log = logging.getLogger(__name__)

RETRY_PAUSE = 3.0
"""Seconds before a review that could not go on is taken up again."""

Admitted = Callable[[Hash32, Story], AdmittedTask | None]


class Reviews:
    """All reviews of one scheduler. `admitted` makes a task again from its story."""

    def __init__(self, desk: Desk, metrics: Metrics, admitted: Admitted) -> None:
        self._desk = desk
        self._metrics = metrics
        self._admitted = admitted
        self._driven: dict[Hash32, asyncio.Task[None]] = {}
        self._undecided: set[Hash32] = set()

    def note_ending(self, task_id: Hash32, story: Story) -> None:
        """Remember a task that was settled without a decision, to have it reviewed."""
        if story.settled is not None and story.settled.outcome == Outcome.INDETERMINATE.name.lower():
            self._undecided.add(task_id)

    def concerns(self, task_id: Hash32) -> bool:
        """Whether rows of the task may still be needed for a review."""
        reviews = self._desk.ledger.state.reviews.values()
        return any(record.live and record.task_id == task_id for record in reviews)

    async def watch(self) -> None:
        """Start what is due, for as long as this runs."""
        while True:
            await self._desk.ledger.wait_until(lambda state: bool(self._due(state) or self._undecided))
            for id_ in self._due(self._desk.ledger.state):
                self._start(id_)
            for task_id in list(self._undecided):
                with task_bound(task_id):
                    await self._escalate(task_id)

    async def abandon(self) -> None:
        """Stop driving; the next start goes on from where the chain stands."""
        for task in self._driven.values():
            task.cancel()
        await asyncio.gather(*self._driven.values(), return_exceptions=True)

    def _due(self, state: State) -> list[Hash32]:
        me = self._desk.scheduler.address
        return [
            id_
            for id_, record in state.reviews.items()
            if record.live and id_ not in self._driven and record.review.terms.scheduler == me
        ]

    def _start(self, id_: Hash32) -> None:
        task = asyncio.create_task(self._drive(id_))
        self._driven[id_] = task
        task.add_done_callback(lambda done: self._driven.pop(id_, None))

    async def _drive(self, id_: Hash32) -> None:
        record = self._desk.ledger.state.reviews[id_]
        with task_bound(record.task_id):
            story = Story.of(self._desk.journal.history(record.task_id))
            task = self._admitted(record.task_id, story)
            if task is None or story.generated is None:
                log.error("the disputed task is not in this journal: its review cannot go on")
                await self._ended(id_)
                return
            traces = self._desk.traces.open(task.task_id, task.row_bytes)
            reviewing = Reviewing(id_, task, story.generated, self._desk, traces)
            log.info("segment %d is verified a second time", record.segment)
            try:
                await self._until_ended(id_, reviewing)
            finally:
                traces.close()
            await release_from(task.task_id, reviewing.parties, self._desk.peers)

    async def _until_ended(self, id_: Hash32, reviewing: Reviewing) -> None:
        while self._is_live(id_):
            try:
                await reviewing.run()
            except (SchedulerError, ChainError, OverlayError, ProtocolError) as error:
                log.warning("the review cannot go on yet: %s", error)
                await asyncio.sleep(RETRY_PAUSE)
            except Exception:
                log.exception("the review failed inside")
                await asyncio.sleep(RETRY_PAUSE)
        record = self._desk.ledger.state.reviews.get(id_)
        if record is not None and record.outcome is not None:
            self._metrics.reviews.labels(record.outcome.name.lower()).inc()

    def _is_live(self, id_: Hash32) -> bool:
        record = self._desk.ledger.state.reviews.get(id_)
        return record is not None and record.live

    async def _ended(self, id_: Hash32) -> None:
        """Wait until somebody has closed a review that this scheduler cannot drive."""
        await self._desk.ledger.wait_until(lambda state: id_ not in state.reviews or not state.reviews[id_].live)

    async def _escalate(self, task_id: Hash32) -> None:
        """Have every undecided segment of a task verified again, where there are nodes for it."""
        self._undecided.discard(task_id)
        record = self._desk.ledger.task(task_id)
        settled = None if record is None else record.settled
        if record is None or settled is None:
            return
        for segment, outcome in enumerate(settled.outcomes):
            if outcome != Outcome.INDETERMINATE or not self._has_reviewers(record, segment):
                continue
            call = dispute(task_id, record.task, settled, segment)
            try:
                # Somebody else may have been faster; the segment is under review then, which is all that is wanted.
                await self._desk.ledger.ensure(review_id(task_id, segment), TaskDisputed, lambda call=call: call)  # type: ignore[misc]
            except (ChainError, SchedulerError) as error:
                log.warning("segment %d stays undecided: %s", segment, error)

    def _has_reviewers(self, record: TaskRecord, segment: int) -> bool:
        terms, ledger = record.task.terms, self._desk.ledger
        group = ledger.state.groups[group_id(terms.execution_class, terms.segments[segment])]
        members = fresh(group.members_at(ledger.block), record.task.parties_of(segment))
        left = sum(member is not None for member in members)
        needed = ledger.state.classes[terms.execution_class].reviewers
        if left < needed:
            log.warning("segment %d stays undecided: %d reviewers of %d", segment, left, needed)
        return left >= needed
