"""How much unpaid work a node does: it begins before the fee is locked, so that the first token comes sooner.

Without bounds, one balance would pay for any number of answers: a scheduler that never opens its tasks could order them
all at once, or one after the other. So the fees of tasks that are not on chain yet count together, each must be on
chain within a while, and a scheduler that leaves too many unopened gets nothing any more before it has opened.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable

from troth.node.errors import NotAssigned
from troth.node.service.seat import Seat
from troth.node.service.work import Work
from troth.node.view import ChainView
from troth.protocol.types import Address, Hash32

OPENING_SECONDS = 120.0
"""How long a task may be worked on before it is on chain: what a scheduler waits for its own opening transaction."""
FORGIVEN = 8
"""Tasks that a scheduler may leave unopened in `MEMORY_SECONDS`: clients can withdraw before the fee is locked."""
MEMORY_SECONDS = 3600.0
SESSIONS_PER_TASK = 32
"""Sessions that one task may begin: each candidate's attempts and some retries, not a loop of Release and Forward."""
TASKS = 4096
"""Tasks whose sessions are counted."""
OPENING_PATIENCE = 15.0
"""Seconds that a scheduler without credit is waited for."""


class Credit:
    """What schedulers and clients owe this node."""

    def __init__(self, view: ChainView) -> None:
        self._view = view
        self._unopened: defaultdict[Address, deque[float]] = defaultdict(deque)
        self._begun: OrderedDict[Hash32, int] = OrderedDict()

    def is_open(self, seat: Seat) -> bool:
        """Whether the fee is locked for this split of the layers, or was until the task ended."""
        task = self._view.task(seat.task_id)
        if task is None:
            return self._view.ended_at(seat.task_id) is not None
        # Opened with another split, it pays for nothing that this node was asked to do.
        return task.terms.segments == seat.assignment.segments

    async def require(self, seat: Seat, works: Iterable[Work], now: float) -> None:
        """Raise NotAssigned unless a session may be begun before, or else because, its task is on chain."""
        self._count(seat.task_id)
        if not self.is_open(seat) and self._is_exhausted(seat.scheduler, now):
            opened = await self._view.until(lambda: self.is_open(seat), OPENING_PATIENCE)
            if not opened:
                raise NotAssigned(
                    "this scheduler has left too many tasks unopened", seat.scheduler, "Open the task, then send it."
                )
        if self.is_open(seat):
            return
        if self._view.task(seat.task_id) is not None:
            raise NotAssigned("the task was opened with another split", seat.task_id, "Announce that of the chain.")
        owed = {
            work.seat.task_id: work.seat.fee
            for work in works
            if work.seat.client == seat.client and now - work.began <= OPENING_SECONDS and not self.is_open(work.seat)
        }
        owed[seat.task_id] = seat.fee
        balance = self._view.escrow(seat.client)
        if balance < sum(owed.values()):
            what = f"the client's escrow is below the fees of its {len(owed)} tasks that are not on chain"
            raise NotAssigned(what, balance, "Open them first, or let the client deposit.")

    def require_opened_in_time(self, work: Work, now: float) -> None:
        """Raise NotAssigned if the task should be on chain by now and is not."""
        if now - work.began > OPENING_SECONDS and not self.is_open(work.seat):
            raise NotAssigned("the task was not opened in time", work.seat.task_id, "Open it, then go on.")

    def note_end(self, work: Work, now: float) -> None:
        """A session is dropped: remember it if nobody will ever pay for it."""
        if work.positions and not self.is_open(work.seat):
            self._unopened[work.seat.scheduler].append(now)

    def _count(self, task: Hash32) -> None:
        begun = self._begun[task] = self._begun.get(task, 0) + 1
        self._begun.move_to_end(task)
        if len(self._begun) > TASKS:
            self._begun.popitem(last=False)
        if begun > SESSIONS_PER_TASK:
            raise NotAssigned("this task has begun too many sessions", SESSIONS_PER_TASK, "Order again.")

    def _is_exhausted(self, scheduler: Address, now: float) -> bool:
        left = self._unopened[scheduler]
        while left and now - left[0] > MEMORY_SECONDS:
            left.popleft()
        return len(left) > FORGIVEN
