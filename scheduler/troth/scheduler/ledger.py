"""The scheduler's writes to the chain. Each is done at most once, whatever happened in between.

Before a transaction is sent, and again after anything went wrong, the folded events are asked whether its effect is
there already. Only then is it sent (again). A restart therefore needs to know nothing but which effect it wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from troth.chain.adapter import Chain
from troth.chain.errors import (
    ChainError,
    ChainRejected,
    ChainUnavailable,
    FollowTimeout,
    RpcRefused,
    TransactionDropped,
    TransactionTimeout,
)
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.chain.records import Receipt
from troth.protocol.calls import Call
from troth.protocol.contract_types import Role
from troth.protocol.events import ReviewEvent, TaskEvent
from troth.protocol.settlement import Outcome
from troth.protocol.state import ReviewRecord, State, TaskRecord
from troth.protocol.types import Hash32
from troth.scheduler.errors import TaskFailed

log = logging.getLogger(__name__)

Wanted = TypeVar("Wanted", bound=TaskEvent | ReviewEvent)
Folded = TaskRecord | ReviewRecord
"""What is known of a task, or of a review: both are found by their ids."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
NEXT_BLOCK = 1.5
"""Seconds to wait for another block before a call that was refused as too early is tried again."""


class TaskEnded(TaskFailed):
    """The task has an outcome on chain already, another one than was being worked for."""

    code = "task_ended"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("The task has ended on chain", outcome.name.lower())
        self.outcome = outcome


class Reorganised(TaskFailed):
    """A reorganisation took a step of the task back."""

    code = "reorganised"


class TaskVanished(Reorganised):
    """The task is not on chain: its opening was taken back."""

    code = "task_vanished"

    def __init__(self, task_id: bytes) -> None:
        super().__init__("The task is not on chain (any more)", "0x" + task_id.hex())


class Ledger:
    """Sends with the operator's key; remembers nothing itself."""

    def __init__(self, chain: Chain, follower: EventFollower, key: Key, *, minimum_stake: int) -> None:
        self._chain = chain
        self._follower = follower
        self._key = key
        self._minimum_stake = minimum_stake
        self._following = asyncio.Lock()
        self._queued: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """The folded events as of the last followed block."""
        return self._follower.state

    @property
    def block(self) -> int:
        """The last followed block."""
        return self._follower.block

    @property
    def failure(self) -> ChainError | None:
        """Why the chain is away, None while it answers."""
        return self._follower.failure

    async def close(self) -> None:
        """Stop following the chain; the state stays as it is."""
        await self._follower.close()

    def standing(self) -> list[str]:
        """What keeps this scheduler from opening tasks: not registered, leaving, or too little stake."""
        account = self.state.account(self._key.address)
        if account.role is not Role.SCHEDULER:
            return [f"{self._key.address} is not registered: troth scheduler register --broadcast"]
        if account.exit_block:
            return [f"the registration ends at block {account.exit_block}"]
        if account.stake < self._minimum_stake:
            missing = self._minimum_stake - account.stake
            return [f"{missing} wei of stake are missing: troth scheduler register tops it up"]
        return []

    async def catch_up(self) -> None:
        """Follow to the newest block now; raises ChainUnavailable if the node is away.

        Who comes while one look at the chain is under way shares the next one: a flood of orders costs no flood of
        requests to the chain's node, behind which the tasks under way would wait.
        """
        if self._queued is None:
            self._queued = asyncio.create_task(self._follow())
        await asyncio.shield(self._queued)

    async def _follow(self) -> None:
        async with self._following:
            self._queued = None
            await self._follower.catch_up()

    def task(self, task_id: Hash32) -> TaskRecord | None:
        """The task as the events tell it, or None if it was never opened."""
        return self.state.tasks.get(task_id)

    def folded(self, id_: Hash32) -> Folded | None:
        """The task or the review of this id, or None if there is none."""
        return self.state.tasks.get(id_) or self.state.reviews.get(id_)

    async def ensure(self, task_id: Hash32, event: type[Wanted], call: Callable[[], Call]) -> tuple[Wanted, Receipt]:
        """Bring about `event` by `call` unless it is there; its receipt.

        `call` is built anew for every attempt, from the state of that moment. While the chain is away this waits.
        Raises ChainRejected if the contract refuses, TaskEnded if the task ended otherwise, and what `call` raises.
        """
        pause, uncertain = FIRST_PAUSE, False
        built_from: Folded | None = None
        refusal: ChainRejected | TaskVanished | None = None
        while True:
            try:
                if uncertain:
                    await self.wait_for_pending()
                await self._follower.catch_up()
                found = self._find(task_id, event)
                if found is None:
                    # What was refused for the state of before a reorganisation is tried again with that of after it.
                    if refusal is not None and self.folded(task_id) == built_from:
                        break
                    built_from, refusal = self.folded(task_id), None
                    receipt = await self._chain.execute(call(), self._key)
                    await self._follower.reach(receipt.block, timeout=30)
                    found = self._find(task_id, event)
                if found is not None:
                    return found, await self._chain.wait_for_receipt(found.meta.transaction)
                log.warning("a reorganisation took %s away", event.__name__)
            except (ChainRejected, TaskVanished) as error:
                refusal, uncertain = error, True
            except (ChainUnavailable, FollowTimeout, RpcRefused, TransactionDropped, TransactionTimeout) as error:
                log.warning("waiting for the chain: %s", error)
                uncertain = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        raise refusal

    async def ensure_soon(
        self, task_id: Hash32, event: type[Wanted], call: Callable[[], Call], too_early: frozenset[str]
    ) -> tuple[Wanted, Receipt]:
        """`ensure` that waits for another block when the contract refuses with one of the errors in `too_early`."""
        while True:
            try:
                return await self.ensure(task_id, event, call)
            except ChainRejected as error:
                if error.name not in too_early:
                    raise
                await asyncio.sleep(NEXT_BLOCK)

    async def reach(self, block: int) -> None:
        """Wait until a block was followed, for as long as it takes."""
        while self._follower.block < block:
            try:
                await self._follower.reach(block, timeout=60)
            except ChainError as error:
                log.debug("waiting for block %d: %s", block, error)

    async def wait_until(self, condition: Callable[[State], bool]) -> None:
        """Wait until the folded state fulfils a condition, for as long as it takes."""
        while not condition(self.state):
            try:
                await self._follower.wait_until(condition, timeout=60)
            except ChainError as error:
                log.debug("still waiting: %s", error)

    async def wait_for_pending(self) -> None:
        """Let transactions that were sent, perhaps in an earlier life, be mined: they may be what is wanted."""
        while await self._chain.unmined(self._key.address):  # noqa: ASYNC110 - nobody tells when a pool empties
            await asyncio.sleep(FIRST_PAUSE)

    def hash_of_phase(self, task_id: Hash32) -> Hash32:
        """Hash of the block in which the task entered its phase; another one after a reorganisation. TaskVanished."""
        record = self.folded(task_id)
        if record is None:
            raise TaskVanished(task_id)
        block = record.task.progress.phase_block
        return next(event.meta.block_hash for event in reversed(record.events) if event.meta.block == block)

    def live_task(self, task_id: Hash32) -> TaskRecord:
        """The task as `task` gives it; raises TaskVanished if it is not on chain."""
        record = self.task(task_id)
        if record is None:
            raise TaskVanished(task_id)
        return record

    def _find(self, task_id: Hash32, event: type[Wanted]) -> Wanted | None:
        record = self.folded(task_id)
        if record is None:
            return None
        for entry in record.events:
            if isinstance(entry, event):
                return entry
        if record.outcome is not None:
            raise TaskEnded(record.outcome)
        return None
