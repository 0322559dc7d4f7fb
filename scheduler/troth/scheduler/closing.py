"""From a complete output to its outcome on chain: verify, commit, sample, open, settle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from troth.chain.errors import ChainRejected
from troth.chain.records import Receipt
from troth.protocol import vrf
from troth.protocol.calls import Call, commit, sample, settle
from troth.protocol.contract_types import NO_PROOF, VrfProof
from troth.protocol.events import TaskCommitted, TaskSampled, TaskSettled
from troth.protocol.request import output_hash
from troth.protocol.state import TaskRecord
from troth.protocol.task import Phase, Task
from troth.protocol.types import ZERO_HASH, Hash32
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.desk import Desk
from troth.scheduler.ledger import Reorganised, TaskVanished
from troth.scheduler.openings import OpeningCollector
from troth.scheduler.posting import assignment_proofs, masked, sample_proof, seated, submission
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
from troth.scheduler.window import CommitWindow

log = logging.getLogger(__name__)

TOO_EARLY = frozenset({"TooEarly"})
TOO_EARLY_TO_MISS = frozenset({"TooEarly", "OpeningMissing"})

Recorder = Callable[[Record], Awaitable[None]]


class _RevealedMeanwhile(Exception):
    """A party has revealed since the openings were put together."""


class Closing:
    """The second half of one task. Every step asks the chain first, so any of them may be taken again."""

    def __init__(
        self,
        task: AdmittedTask,
        generated: Generated,
        desk: Desk,
        traces: TaskTraces,
        *,
        window: CommitWindow,
        story: Story,
        spent: Breakdown,
    ) -> None:
        self._task = task
        self._generated = generated
        self._desk = desk
        self._traces = traces
        self._window = window
        self._story = story
        self._spent = spent
        self._built_on = ZERO_HASH

    async def commit(self, record: Recorder) -> Committed:
        """Verify and post the commitments; raises TaskFailed, ChainRejected or TaskEnded, with nothing posted."""
        committing = self._story.committing
        if committing is None:
            await record(Verifying())
            with self._spent.spent("verification"):
                committing = await self._window.during(self._verified())
            await record(committing)
        with self._spent.spent("committing"):
            event, receipt = await self._desk.ledger.ensure(
                self._task.task_id,
                TaskCommitted,
                lambda: self._commit_call(committing),
            )
        committed = Committed(event.meta.transaction, event.meta.block, receipt.gas_used)
        if committed != self._story.committed:
            await record(committed)
        return committed

    async def settle(self, record: Recorder) -> Settled:
        """Sample, collect the openings and settle; raises ChainRejected, TaskEnded or Reorganised."""
        with self._spent.spent("settling"):
            self._require_committed()
            self._built_on = self._desk.ledger.hash_of_phase(self._task.task_id)
            proof = self._sample()
            collector = self._collector(proof)
            collector.take_revealed(self._events())
            missing = await collector.collect(self._desk.waits.opening)
            if missing:
                log.warning("%d openings are missing: %s", len(missing), ", ".join(seat.party for seat in missing))
                proof = await self._wait_out_reveals(proof, collector, record)
            await record(Settling())
            event, receipt = await self._settled(proof, collector, TOO_EARLY_TO_MISS if missing else TOO_EARLY)
        settled = Settled(event.meta.transaction, event.meta.block, receipt.gas_used, event.outcome.name.lower())
        await record(settled)
        return settled

    async def _settled(
        self, proof: VrfProof, collector: OpeningCollector, too_early: frozenset[str]
    ) -> tuple[TaskSettled, Receipt]:
        """Settle, again for as long as a party reveals by its own call before this one is mined."""
        while True:
            record = self._record()
            collector.take_revealed(record.events)
            call = partial(self._settle_call, proof, collector, record.task.progress.revealed)
            try:
                return await self._desk.ledger.ensure_soon(self._task.task_id, TaskSettled, call, too_early)
            except _RevealedMeanwhile:
                continue
            except ChainRejected:
                if self._on_chain().progress.revealed == record.task.progress.revealed:
                    raise

    def _settle_call(self, proof: VrfProof, collector: OpeningCollector, revealed: tuple[Hash32, ...]) -> Call:
        """For the state of this moment; raises _RevealedMeanwhile where the openings do not fit it any more."""
        on_chain = self._on_chain()
        if on_chain.progress.revealed != revealed:
            raise _RevealedMeanwhile
        openings = masked(collector.openings, 1 + self._task.execution_class.verifiers)
        return settle(self._task.task_id, on_chain, proof, openings)

    def outdated(self) -> bool:
        """Whether a reorganisation has taken away the block that the settlement was built on."""
        try:
            return self._desk.ledger.hash_of_phase(self._task.task_id) != self._built_on
        except TaskVanished:
            return True

    def _require_committed(self) -> None:
        phase = self._on_chain().progress.phase
        if phase not in (Phase.COMMITTED, Phase.SAMPLED):
            raise Reorganised("The commitments are not on chain any more", phase.name.lower())

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

    def _sample(self) -> VrfProof:
        """The proof over the posted commitments; none where nothing is sampled or the seed is on chain already."""
        on_chain = self._on_chain()
        if self._task.execution_class.exact or on_chain.progress.phase is Phase.SAMPLED:
            return NO_PROOF
        block_hash = self._desk.ledger.hash_of_phase(self._task.task_id)
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
            self._built_on = event.meta.block_hash
        last = self._on_chain().progress.phase_block + self._desk.reveal_window
        collecting = asyncio.create_task(self._collect_all(collector))
        ending = asyncio.create_task(self._desk.ledger.reach(last + 1))
        try:
            await asyncio.wait({collecting, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            collecting.cancel()
            ending.cancel()
        return NO_PROOF

    async def _collect_all(self, collector: OpeningCollector) -> None:
        while await collector.collect(self._desk.waits.opening):
            log.info("still waiting for openings")
            collector.take_revealed(self._events())

    def _commit_call(self, committing: Committing) -> Call:
        on_chain = self._on_chain()
        drawn = [self._task.assignment.candidates(segment) for segment in range(self._task.segment_count)]
        inferencers = [own[made.inferencer] for own, made in zip(drawn, committing.segments, strict=True)]
        posts = seated(submission(committing), on_chain, inferencers, drawn)
        return commit(self._task.task_id, on_chain, self._proofs(), posts)

    def _proofs(self) -> tuple[VrfProof, ...]:
        assigned = self._on_chain().progress.phase is Phase.ASSIGNED
        return () if assigned else assignment_proofs(self._task, self._desk.vrf_key)

    def _on_chain(self) -> Task:
        return self._record().task

    def _events(self) -> tuple[object, ...]:
        return self._record().events

    def _record(self) -> TaskRecord:
        return self._desk.ledger.live_task(self._task.task_id)
