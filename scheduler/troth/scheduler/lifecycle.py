"""One task from its admission to its outcome: the only place that knows the order of the steps.

    received → opening → opened ┐
               generating … generated → verifying → committing → committed → [sampled] → settling → settled
    anything before committed may instead go → aborting → aborted, and before opened → failed.

Each step is journalled before the next one begins. The fee is locked while the prompt is already being read.
"""

from __future__ import annotations

import asyncio
import logging

from troth.chain.errors import ChainError, ChainRejected
from troth.protocol.calls import Call, abort, open_task
from troth.protocol.events import TaskAborted, TaskOpened
from troth.protocol.logprobs import Logprobs
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.task import Phase
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.closing import Closing
from troth.scheduler.desk import Desk
from troth.scheduler.entry_choice import EntryChoice
from troth.scheduler.errors import SchedulerError, TaskFailed
from troth.scheduler.generation import Generation
from troth.scheduler.ledger import Reorganised, TaskEnded, TaskVanished
from troth.scheduler.records import (
    Aborted,
    Aborting,
    Committed,
    Failed,
    Generated,
    Opened,
    Opening,
    Record,
    Settled,
)
from troth.scheduler.story import Story
from troth.scheduler.stream import ClientStream
from troth.scheduler.task_errors import HopFailed
from troth.scheduler.timing import Breakdown
from troth.scheduler.window import CommitWindow

log = logging.getLogger(__name__)


class Lifecycle:
    """Drives one task. `stream` may be read by a client or by nobody."""

    def __init__(
        self, task: AdmittedTask, desk: Desk, stream: ClientStream, story: Story | None = None, *, direct: bool = False
    ) -> None:
        """`direct`: the task came through a node of its model, which says who of the candidates shall serve."""
        self.task = task
        self.entry_choice = EntryChoice(task.assignment.candidates(0)) if direct else None
        self.stream = stream
        self.story = story or Story()
        self.spent = Breakdown()
        self._desk = desk
        self._traces = desk.traces.open(task.task_id, task.row_bytes)
        self._window = CommitWindow(desk.ledger, desk.commit_window)
        self._generation = Generation(
            task,
            traces=self._traces,
            peers=desk.peers,
            scheduler=desk.scheduler,
            spent=self.spent,
            patience=desk.waits.generation,
            chains=desk.chains,
            entry_choice=self.entry_choice,
        )

    async def run(self) -> None:
        """Everything after `received` was journalled."""
        try:
            generated = await self._open_and_generate()
            if generated is not None:
                await self._finish(generated)
        finally:
            self._put_away()

    async def resume(self) -> None:
        """Go on after a restart from what the journal and the chain say."""
        try:
            on_chain = self._desk.ledger.task(self.task.task_id)
            cut_off = TaskFailed("The scheduler restarted while the task was running")
            answer = self.story.generated if self.story.aborting is None else None
            # The client has seen the answer of a task that was opened, even if a reorganisation took the opening back.
            if on_chain is None and (answer is None or self.story.opened is None):
                await self._fail(cut_off)
            elif on_chain is not None and on_chain.outcome is not None:
                await self._note_ending(on_chain.outcome)
            elif answer is not None:
                if on_chain is not None and on_chain.task.progress.phase in (Phase.OPENED, Phase.ASSIGNED):
                    self._window.opened(on_chain.task.progress.phase_block)
                await self._finish(answer)
            else:
                # No complete output survives a restart in the middle of it: the client gets its fee back.
                await self._abort(cut_off)
        finally:
            self._put_away()

    async def record(self, record: Record) -> None:
        """Journal one step."""
        await self._desk.journal.record(self.task.task_id, record)
        self.story.add(record)

    async def _open_and_generate(self) -> Generated | None:
        opening = asyncio.create_task(self._open())
        generating = asyncio.create_task(self._window.during(self._generate()))
        try:
            until = asyncio.get_running_loop().time() + self._desk.waits.locking
            await asyncio.wait(
                {opening, generating}, timeout=self._desk.waits.locking, return_when=asyncio.FIRST_EXCEPTION
            )
            await self._wait_for_lock(opening, until)
            if opening.exception() is not None:
                await self._fail(opening.exception())
                return None
            generated = await generating
        except Exception as error:  # noqa: BLE001 - whatever broke, the locked fee must go back
            await self._abort(error)
            return None
        finally:
            generating.cancel()
        self._announce_finish(generated)
        return generated

    async def _wait_for_lock(self, opening: asyncio.Task[None], until: float) -> None:
        """The opening may outlast a client's patience, when the chain is away; then the fee is given back on sight."""
        left = until - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait({opening}, timeout=max(0.0, left))
        if not done:
            late = TaskFailed("The chain took too long to lock the fee")
            self.stream.send("failed", code=late.code, message=str(late), charged=False, retry_free=True)
            self.stream.end()
            await asyncio.wait({opening})
            if opening.exception() is None:
                raise late

    async def _open(self) -> None:
        await self.record(Opening())
        task = self.task
        with self.spent.spent("opening"):
            event, receipt = await self._desk.ledger.ensure(
                task.task_id, TaskOpened, lambda: open_task(task.order, task.signature)
            )
        await self.record(Opened(event.meta.transaction, event.meta.block, receipt.gas_used))
        self._window.opened(event.meta.block)
        self.stream.send("opened", tx=_hex(event.meta.transaction), gas=receipt.gas_used)
        self.stream.open_gate()

    async def _generate(self) -> Generated:
        generated = await self._generation.run(self.record, self._hand_out)
        await self.record(generated)
        return generated

    def _hand_out(self, position: int, token: int, logprobs: Logprobs | None) -> None:
        told = {} if logprobs is None else {"logprob": logprobs.chosen, "top": logprobs.top}
        self.stream.send_when_opened("token", id=token, position=position, **told)

    def _announce_finish(self, generated: Generated) -> None:
        reason = "end" if generated.finished == "stop" else "length"
        hashed = output_hash(self.task.salt, generated.tokens)
        self.stream.send("finished", reason=reason, output_hash=_hex(hashed))

    async def _finish(self, generated: Generated) -> None:
        """Commit and settle; again from where the chain stands, if a reorganisation took a step of it away."""
        while True:
            try:
                closing, committed = await self._commit(generated)
                self.stream.send("committed", tx=_hex(committed.transaction), gas=committed.gas)
            except TaskVanished:
                if not await self._opened_again():
                    return
                continue
            except TaskEnded as ended:
                await self._note_ending(ended.outcome)
                return
            except Exception as error:  # noqa: BLE001 - nothing is committed, so whatever broke, the fee can go back
                await self._abort(error)
                return
            if await self._settle(closing):
                return
            generated = self.story.generated or generated

    async def _opened_again(self) -> bool:
        """Lock the fee once more after a reorganisation; False if it cannot be, and the task is over."""
        log.warning("a reorganisation took the opening away: opening again")
        try:
            await self._open()
        except (ChainError, TaskFailed) as error:
            await self._fail(error)
            return False
        return True

    async def _commit(self, generated: Generated) -> tuple[Closing, Committed]:
        """Commit to the output; an inferencer that cannot answer for its part any more is replaced."""
        while True:
            closing = Closing(
                self.task,
                generated,
                self._desk,
                self._traces,
                window=self._window,
                story=self.story,
                spent=self.spent,
            )
            try:
                return closing, await closing.commit(self.record)
            except HopFailed as failure:
                begun = self.story.generating
                newest = generated.attempt if begun is None else max(begun.attempt, generated.attempt)
                generated = await self._window.during(
                    self._generation.replay(generated, failure, self.record, newest_attempt=newest)
                )
                await self.record(generated)

    async def _settle(self, closing: Closing) -> bool:
        """Settle; False if a reorganisation came between, and it must be begun again."""
        try:
            settled = await closing.settle(self.record)
        except TaskEnded as ended:
            await self._note_ending(ended.outcome)
        except Reorganised as undone:
            log.warning("a reorganisation came before the settlement: %s", undone)
            return False
        except ChainRejected as refusal:
            if closing.outdated():
                log.warning("a reorganisation came before the settlement: %s", refusal)
                return False
            # Unfinished in the journal on purpose: a restart tries again, and after the window anyone may close it.
            log.error("the task cannot be settled: %s", refusal)
            self.stream.send("failed", code="not_settled", message=str(refusal), charged=True, retry_free=False)
        else:
            self.stream.send("settled", tx=_hex(settled.transaction), gas=settled.gas, outcome=settled.outcome)
        return True

    async def _abort(self, reason: BaseException) -> None:
        code, message = _told(reason)
        log.warning("giving the task up: %s", message)
        await self.record(Aborting(code, message))
        try:
            event, receipt = await self._desk.ledger.ensure(self.task.task_id, TaskAborted, self._abort_call)
        except TaskEnded as ended:
            await self._note_ending(ended.outcome)
        except TaskVanished:
            # A reorganisation took the opening away, and nothing in the pool brings it back: nothing is locked.
            await self._fail(reason)
        except ChainRejected as refusal:
            # Too late to abort: the parties' own posts suffice to go on without this scheduler, or its window is over.
            await self.record(Failed("abort_refused", str(refusal), charged=True))
            self.stream.send("failed", code="abort_refused", message=str(refusal), charged=True, retry_free=False)
        else:
            await self.record(Aborted(event.meta.transaction, event.meta.block, receipt.gas_used))
            self.stream.send("failed", code=code, message=message, charged=False, retry_free=True)

    def _abort_call(self) -> Call:
        return abort(self.task.task_id, self._desk.ledger.live_task(self.task.task_id).task)

    async def _fail(self, error: BaseException | None) -> None:
        """The fee was never locked."""
        code, message = _told(error)
        await self.record(Failed(code, message, charged=False))
        self.stream.send("failed", code=code, message=message, charged=False, retry_free=True)

    async def _note_ending(self, outcome: Outcome) -> None:
        """The task has ended on chain, by an earlier life of this process or by somebody else."""
        record = self._desk.ledger.task(self.task.task_id)
        assert record is not None  # TaskEnded comes from this very record
        meta = record.events[-1].meta
        await self.record(Settled(meta.transaction, meta.block, 0, outcome.name.lower()))
        self.stream.send("settled", tx=_hex(meta.transaction), gas=0, outcome=outcome.name.lower())

    def _put_away(self) -> None:
        if self._desk.chains is not None:
            self._desk.chains.release(self.task)
        self._traces.close()
        self._desk.journal.keep_timings(self.task.task_id, self.spent.as_numbers())
        self.stream.end()


def _told(error: BaseException | None) -> tuple[str, str]:
    """Code and message for the client; what is none of Troth's errors stays in the log."""
    if isinstance(error, ExceptionGroup):
        return _told(error.exceptions[0])
    if isinstance(error, SchedulerError):
        return error.code, str(error)
    if isinstance(error, ChainError):
        return "chain", str(error)
    log.error("a task failed inside", exc_info=error)
    return "internal", "The scheduler failed; its log has the cause."


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
