"""The scheduler: takes orders, runs their tasks, takes up again what a crash has cut off."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable

from troth.chain.errors import ChainError
from troth.overlay.logs import task_bound
from troth.protocol.types import Address, Hash32
from troth.scheduler.admission import Admission, SubmittedOrder, View
from troth.scheduler.admitted import AdmittedTask, from_record
from troth.scheduler.catalogue import Catalogue
from troth.scheduler.desk import Desk
from troth.scheduler.endings import REMEMBERED_SECONDS, Endings
from troth.scheduler.errors import BadRequest, Busy, ChainAway, OrderRefused
from troth.scheduler.lifecycle import Lifecycle
from troth.scheduler.metrics import Metrics
from troth.scheduler.pool.coordinator import Coordinator
from troth.scheduler.records import Failed, Reopened
from troth.scheduler.release import release
from troth.scheduler.reviews import Reviews
from troth.scheduler.story import Story
from troth.scheduler.stream import ClientStream
from troth.scheduler.task_errors import UnknownTask

log = logging.getLogger(__name__)

RETRY_AFTER = 5
"""Seconds after which a client that found all places taken may ask again: a short answer's time."""


class Scheduler:
    """All tasks of one scheduler; at most `concurrent` at once, more are refused with Busy."""

    def __init__(
        self,
        desk: Desk,
        admission: Admission,
        catalogue: Catalogue,
        metrics: Metrics,
        pools: Coordinator,
        *,
        concurrent: int,
    ) -> None:
        self.pools = pools
        self.desk = desk
        self.catalogue = catalogue
        self.metrics = metrics
        self.draining = False
        self._admission = admission
        self._concurrent = concurrent
        self._running: dict[Hash32, Lifecycle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._endings = Endings.of(desk.journal)
        self.reviews = Reviews(desk, metrics, self._admitted)

    async def submit(self, submitted: SubmittedOrder, *, direct: bool = False) -> Lifecycle:
        """Take an order and start its task; raises one of OrderRefused's kinds, with nothing charged or kept.

        `direct`: it entered at a node of the model, which will say by `choose` who shall serve it.
        """
        try:
            task = await self._admit(submitted)
            if direct and task.segment_count > 1:
                what = "A direct task has one segment, the whole model"
                raise BadRequest(what, list(task.ends), "Order it from the scheduler instead.")
        except OrderRefused as refusal:
            self.metrics.orders.labels(refusal.code).inc()
            raise
        self.metrics.orders.labels("taken").inc()
        stream = ClientStream()
        lifecycle = Lifecycle(task, self.desk, stream, direct=direct)
        self._running[task.task_id] = lifecycle
        try:
            await lifecycle.record(task.to_record())
        except BaseException:
            del self._running[task.task_id]
            raise
        stream.send("assigned", **_assigned(task))
        self._start(lifecycle, lifecycle.run())
        return lifecycle

    def choose(self, task_id: Hash32, salt: Hash32, node: Address | None) -> None:
        """The entry's word on which candidate of a direct task shall serve; UnknownTask, BadRequest or TooLate."""
        running = self._running.get(task_id)
        if running is None or running.entry_choice is None or not hmac.compare_digest(running.task.salt, salt):
            raise UnknownTask("No such direct task runs here", "0x" + task_id.hex(), "Send the task's own salt.")
        running.entry_choice.give(node)

    async def resume(self) -> int:
        """Take up every unfinished task; returns how many. Call it once, before orders are taken."""
        for task_id in self.desk.journal.ended_since(time.time() - REMEMBERED_SECONDS):
            self.reviews.note_ending(Hash32(task_id), Story.of(self.desk.journal.history(task_id)))
        unfinished = self.desk.journal.unfinished()
        if not unfinished:
            return 0
        await self.desk.ledger.wait_for_pending()
        await self.desk.ledger.catch_up()
        for task_id in unfinished:
            with task_bound(task_id):
                await self._take_up(Hash32(task_id))
        return len(unfinished)

    async def watch_endings(self) -> None:
        """Take up again, for as long as this runs, what a reorganisation has taken the end of."""
        ledger = self.desk.ledger
        while True:
            await ledger.wait_until(lambda state: bool(self._endings.undone(state)))
            try:
                # Most reorganisations put the same transactions into other blocks.
                await ledger.wait_for_pending()
                await ledger.catch_up()
            except ChainError as error:
                log.warning("waiting for the chain: %s", error)
                await asyncio.sleep(RETRY_AFTER)
                continue
            for task_id in self._endings.undone(ledger.state):
                self._endings.forget(task_id)
                with task_bound(task_id):
                    log.warning("a reorganisation took the end of the task back")
                    await self.desk.journal.record(task_id, Reopened())
                    await self._take_up(task_id)

    async def drain(self) -> None:
        """Take no more orders and wait for the tasks under way."""
        self.draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Drop the tasks under way where they stand; the journal has what the next start needs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reasons(self) -> list[str]:
        """Why this scheduler is not ready; empty when it is."""
        ledger = self.desk.ledger
        found = self.catalogue.problems(ledger.state)
        if self.draining:
            found.append("draining: no orders are taken any more")
        if ledger.failure is not None:
            found.append(f"the chain is away: {ledger.failure}")
        found += ledger.standing()
        return found

    def prune(self, keep_seconds: float) -> None:
        """Remove rows of tasks that ended longer ago than that; their journal stays."""
        running = set(self.desk.journal.unfinished())
        for task_id in self.desk.traces.older_than(time.time() - keep_seconds):
            if task_id not in running and not self.reviews.concerns(Hash32(task_id)):
                self.desk.traces.forget(task_id)

    async def _admit(self, submitted: SubmittedOrder) -> AdmittedTask:
        if self.draining:
            raise Busy("This scheduler is being stopped", RETRY_AFTER)
        if len(self._running) >= self._concurrent:
            raise Busy(f"All {self._concurrent} places are taken", RETRY_AFTER)
        try:
            # The client may have seen a block, or made a deposit, that was not followed yet.
            await self.desk.ledger.catch_up()
        except ChainError as error:
            raise ChainAway("This scheduler cannot reach the chain", error, "Try again later.") from error
        if len(self._running) >= self._concurrent:
            raise Busy(f"All {self._concurrent} places are taken", RETRY_AFTER)
        ledger = self.desk.ledger
        view = View(ledger.state, ledger.block, self._reserved, self._known)
        return self._admission.admit(submitted, view)

    def _reserved(self, client: Address) -> int:
        waiting = (task for task in self._running.values() if task.task.client == client and task.story.opened is None)
        return sum(lifecycle.task.fee for lifecycle in waiting)

    def _known(self, task_id: Hash32) -> bool:
        return task_id in self._running or self.desk.journal.known(task_id)

    def _admitted(self, task_id: Hash32, story: Story) -> AdmittedTask | None:
        """A task again from its story; None if its class is not on this chain."""
        state, received = self.desk.ledger.state, story.received
        execution_class = state.classes.get(Hash32(received.execution_class)) if received else None
        model = state.models.get(execution_class.model) if execution_class else None
        if received is None or execution_class is None or model is None:
            return None
        return from_record(task_id, received, execution_class, model)

    async def _take_up(self, task_id: Hash32) -> None:
        story = Story.of(self.desk.journal.history(task_id))
        task = self._admitted(task_id, story)
        if task is None:
            log.error("the task cannot be resumed: its class is not on this chain")
            await self.desk.journal.record(task_id, Failed("unknown_class", "The class is not on this chain", True))
            return
        lifecycle = Lifecycle(task, self.desk, ClientStream(), story)
        log.info("resuming after step %s", story.step)
        self._running[task_id] = lifecycle
        self._start(lifecycle, lifecycle.resume())

    def _start(self, lifecycle: Lifecycle, work: Awaitable[None]) -> None:
        task = asyncio.create_task(self._run(lifecycle, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.metrics.running.set(len(self._running))

    async def _run(self, lifecycle: Lifecycle, work: Awaitable[None]) -> None:
        with task_bound(lifecycle.task.task_id):
            try:
                await work
                await release(lifecycle.task, self.desk.peers)
            except Exception:
                # Unfinished in the journal, so the next start takes it up; anyone may close it once it is late.
                log.exception("the task was left unfinished after step %s", lifecycle.story.step)
            finally:
                del self._running[lifecycle.task.task_id]
                self._endings.note(lifecycle.task.task_id, lifecycle.story, self.desk.ledger.block)
                self.reviews.note_ending(lifecycle.task.task_id, lifecycle.story)
                self.metrics.running.set(len(self._running))
                self.metrics.observe(lifecycle.story.step, lifecycle.spent)


def _assigned(task: AdmittedTask) -> dict[str, object]:
    return {
        "task_id": "0x" + task.task_id.hex(),
        "ends": list(task.ends),
        "proofs": ["0x" + proof.hex() for proof in task.assignment.proofs],
        "parties": [list(parties) for parties in task.assignment.parties],
    }
