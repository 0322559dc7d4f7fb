"""From a complete output to its outcome on chain: verify, commit, sample, open, settle."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from troth.protocol import vrf
from troth.protocol.calls import commit, sample, settle
from troth.protocol.contract_types import NO_PROOF, VrfProof
from troth.protocol.events import TaskCommitted, TaskSampled, TaskSettled
from troth.protocol.request import output_hash
from troth.protocol.task import Phase, Task
from troth.protocol.types import Hash32
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.desk import Desk
from troth.scheduler.errors import TaskFailed
from troth.scheduler.openings import OpeningCollector
from troth.scheduler.posting import assignment_proofs, masked, sample_proof, submission
from troth.scheduler.records import (
    Committed,
    Committing,
    Generated,
    Record,
    Sampled,
    Settled,
    Settling,
    Verifying,
)
from troth.scheduler.story import Story
from troth.scheduler.timing import Breakdown
from troth.scheduler.trace_store import TaskTraces
from troth.scheduler.verification import SegmentVerification, verify_all

log = logging.getLogger(__name__)

TOO_EARLY = frozenset({"TooEarly"})
TOO_EARLY_TO_MISS = frozenset({"TooEarly", "OpeningMissing"})

Recorder = Callable[[Record], Awaitable[None]]


class Closing:
    """The second half of one task. Every step asks the chain first, so any of them may be taken again."""

    def __init__(
        self,
        task: AdmittedTask,
        generated: Generated,
        desk: Desk,
        traces: TaskTraces,
        *,
        story: Story,
        spent: Breakdown,
    ) -> None:
        self._task = task
        self._generated = generated
        self._desk = desk
        self._traces = traces
        self._story = story
        self._spent = spent

    async def commit(self, record: Recorder) -> Committed:
        """Verify and post the commitments; raises TaskFailed, ChainRejected or TaskEnded, with nothing posted."""
        if self._story.committed is not None:
            return self._story.committed
        committing = self._story.committing
        if committing is None:
            await record(Verifying())
            with self._spent.spent("verification"):
                committing = await self._verified()
            await record(committing)
        posts = submission(committing)
        with self._spent.spent("committing"):
            event, receipt = await self._desk.ledger.ensure(
                self._task.task_id,
                TaskCommitted,
                lambda: commit(self._task.task_id, self._on_chain(), self._proofs(), posts),
            )
        committed = Committed(event.meta.transaction, event.meta.block, receipt.gas_used)
        await record(committed)
        return committed

    async def settle(self, record: Recorder) -> Settled:
        """Sample, collect the openings and settle; raises ChainRejected or TaskEnded."""
        with self._spent.spent("settling"):
            proof = await self._sample()
            collector = self._collector(proof)
            missing = await collector.collect(self._desk.waits.opening)
            if missing:
                log.warning("%d openings are missing: %s", len(missing), ", ".join(seat.party for seat in missing))
                proof = await self._wait_out_reveals(proof, collector, record)
            await record(Settling())
            openings = masked(collector.openings, 1 + self._task.execution_class.verifiers)
            event, receipt = await self._desk.ledger.ensure_soon(
                self._task.task_id,
                TaskSettled,
                lambda: settle(self._task.task_id, self._on_chain(), proof, openings),
                TOO_EARLY_TO_MISS if missing else TOO_EARLY,
            )
        settled = Settled(event.meta.transaction, event.meta.block, receipt.gas_used, event.outcome.name.lower())
        await record(settled)
        return settled

    async def _verified(self) -> Committing:
        segments = [
            SegmentVerification(
                self._task,
                self._generated,
                segment,
                traces=self._traces,
                peers=self._desk.peers,
                scheduler=self._desk.scheduler,
                timeout=self._desk.waits.verification,
            )
            for segment in range(self._task.segment_count)
        ]
        return Committing(
            attempt=self._generated.attempt,
            positions=len(self._task.request.prompt_tokens) + len(self._generated.tokens) - 1,
            output_hash=output_hash(self._task.salt, self._generated.tokens),
            segments=await verify_all(segments),
        )

    async def _sample(self) -> VrfProof:
        """The proof over the posted commitments; none where nothing is sampled or the seed is on chain already."""
        on_chain = self._on_chain()
        if self._task.execution_class.exact or on_chain.progress.phase is Phase.SAMPLED:
            return NO_PROOF
        block_hash = await self._desk.ledger.block_hash(on_chain.progress.phase_block)
        return sample_proof(
            self._desk.vrf_secret, self._desk.scheduler.domain, self._task.task_id, on_chain, block_hash
        )

    def _collector(self, proof: VrfProof) -> OpeningCollector:
        on_chain, seed = self._on_chain(), None
        if on_chain.progress.phase is Phase.SAMPLED:
            seed = on_chain.progress.seed
        elif proof.proof:
            seed = Hash32(vrf.proof_to_hash(proof.proof))
        return OpeningCollector(self._task, on_chain, self._desk.peers, seed=seed, proof=proof.proof or None)

    async def _wait_out_reveals(self, proof: VrfProof, collector: OpeningCollector, record: Recorder) -> VrfProof:
        """Start the reveal window, let the silent use it, and come back when whoever is silent still can be slashed."""
        if proof.proof:
            event, receipt = await self._desk.ledger.ensure_soon(
                self._task.task_id,
                TaskSampled,
                lambda: sample(self._task.task_id, self._on_chain(), proof),
                TOO_EARLY,
            )
            await record(Sampled(event.meta.transaction, event.meta.block, receipt.gas_used))
        last = self._on_chain().progress.phase_block + self._desk.reveal_window
        while self._desk.ledger.block <= last:
            if not await collector.collect(self._desk.waits.opening):
                break
            await self._desk.ledger.reach(min(last, self._desk.ledger.block) + 1)
        return NO_PROOF

    def _proofs(self) -> tuple[VrfProof, ...]:
        assigned = self._on_chain().progress.phase is Phase.ASSIGNED
        return () if assigned else assignment_proofs(self._task, self._desk.vrf_key)

    def _on_chain(self) -> Task:
        record = self._desk.ledger.task(self._task.task_id)
        if record is None:
            raise TaskFailed("The task is not on chain", self._task.task_id.hex())
        return record.task
