"""One second verification from its dispute to its outcome: draw, verify, commit, sample, open, settle.

Nothing is journalled: each step asks the chain first, and the reviewers give the same answers again, so a restart in
the middle begins where the chain stands.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from troth.chain.errors import ChainRejected
from troth.protocol import vrf
from troth.protocol.calls import Call, assign_review, commit_review, sample, settle_review
from troth.protocol.contract_types import NO_PROOF, Settled, VrfProof, join_signatures
from troth.protocol.events import ReviewAssigned, ReviewSettled, TaskCommitted, TaskDisputed, TaskSampled
from troth.protocol.identifiers import group_id
from troth.protocol.review import draw_alpha
from troth.protocol.state import ReviewRecord
from troth.protocol.task import Phase, Task
from troth.protocol.types import ZERO_HASH, Address, Hash32, TraceRoot
from troth.protocol.vrf_hints import hints
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.desk import Desk
from troth.scheduler.errors import TaskFailed
from troth.scheduler.ledger import Reorganised
from troth.scheduler.openings import OpeningCollector
from troth.scheduler.posting import masked, sample_proof
from troth.scheduler.records import Generated
from troth.scheduler.trace_store import TaskTraces
from troth.scheduler.verification import Committee, SegmentVerification, SignedCommitment

log = logging.getLogger(__name__)

TOO_EARLY = frozenset({"TooEarly"})
TOO_EARLY_TO_MISS = frozenset({"TooEarly", "OpeningMissing"})
MOVED = frozenset({"StateMismatch", "RevealMismatch"})
"""What the contract says when a party revealed by its own call while a settlement was under way."""


class Reviewing:
    """Drives one review of one segment of a task that this scheduler ran."""

    def __init__(
        self, review_id: Hash32, task: AdmittedTask, generated: Generated, desk: Desk, traces: TaskTraces
    ) -> None:
        self._id = review_id
        self._task = task
        self._generated = generated
        self._desk = desk
        self._traces = traces

    async def run(self) -> None:
        """Take the next step until the review has an outcome; raises what keeps it from going on."""
        while (record := self._desk.ledger.state.reviews.get(self._id)) is not None and record.live:
            phase = record.review.progress.phase
            if phase is Phase.DISPUTED:
                await self._draw()
            elif phase is Phase.ASSIGNED:
                await self._commit(record)
            else:
                await self._settle()

    async def _draw(self) -> None:
        await self._desk.ledger.ensure_soon(self._id, ReviewAssigned, self._draw_call, TOO_EARLY)

    def _draw_call(self) -> Call:
        ledger, record = self._desk.ledger, self._record()
        terms = record.review.terms
        group = ledger.state.groups[group_id(terms.execution_class, terms.segments[0])]
        began = next(event for event in record.events if isinstance(event, TaskDisputed))
        size = group.size_at(terms.reference_block)
        alpha = draw_alpha(self._desk.scheduler.domain, self._id, group_size=size, block_hash=began.meta.block_hash)
        proof = vrf.prove(self._desk.vrf_secret, alpha)
        return assign_review(self._id, record.review, VrfProof(proof, tuple(hints(self._desk.vrf_key, alpha, proof))))

    async def _commit(self, record: ReviewRecord) -> None:
        progress = record.review.progress
        if progress.attempt != self._generated.attempt:
            raise TaskFailed("Another attempt is on chain than the one whose rows are here", progress.attempt)
        committee = Committee(record.review.verifiers_of(0), self._id, 0, review=self._id)
        verification = SegmentVerification(
            self._task,
            self._generated,
            record.segment,
            traces=self._traces,
            peers=self._desk.peers,
            scheduler=self._desk.scheduler,
            timeout=self._desk.waits.verification,
            committee=committee,
        )
        log.info("%d reviewers repeat segment %d", len(committee.verifiers), record.segment)
        posted = TraceRoot(self._id, 0, progress.attempt, progress.positions, progress.posts[0], progress.output_hash)
        found = await verification.review(posted)
        # While some are missing the contract waits for them, so that nobody's vote can be left out.
        await self._desk.ledger.ensure_soon(self._id, TaskCommitted, partial(self._commit_call, found), TOO_EARLY)

    def _commit_call(self, found: Iterable[SignedCommitment | None]) -> Call:
        made = tuple(found)
        return commit_review(
            self._id,
            self._record().review,
            (),
            [ZERO_HASH if one is None else one.commitment for one in made],
            join_signatures(tuple(one.signature for one in made if one is not None)),
        )

    async def _settle(self) -> None:
        proof = self._sample()
        collector = self._collector(proof)
        collector.take_revealed(self._record().events)
        missing = await collector.collect(self._desk.waits.opening)
        if missing:
            log.warning("%d openings are missing: %s", len(missing), ", ".join(seat.party for seat in missing))
            proof = await self._wait_out_reveals(proof, collector)
        too_early = TOO_EARLY_TO_MISS if missing else TOO_EARLY
        while True:
            collector.take_revealed(self._record().events)
            try:
                call = partial(self._settle_call, proof, collector)
                event, _ = await self._desk.ledger.ensure_soon(self._id, ReviewSettled, call, too_early)
            except ChainRejected as error:
                if error.name not in MOVED:
                    raise
                await self._desk.ledger.catch_up()
            else:
                log.info("the review ended: %s, the task is %s", event.outcome.name, event.task_outcome.name)
                return

    def _settle_call(self, proof: VrfProof, collector: OpeningCollector) -> Call:
        record = self._record()
        ended, settled = self._ended(record)
        openings = masked(collector.openings, record.review.posts_per_segment)
        return settle_review(record.task_id, ended, settled, record.segment, record.review, proof, openings)

    def _ended(self, record: ReviewRecord) -> tuple[Task, Settled]:
        first = self._desk.ledger.live_task(record.task_id)
        if first.settled is None:
            raise Reorganised("The first settlement is not on chain any more", first.task.progress.phase.name.lower())
        return first.task, first.settled

    def _sample(self) -> VrfProof:
        review = self._record().review
        if self._task.execution_class.exact or review.progress.phase is Phase.SAMPLED:
            return NO_PROOF
        block_hash = self._desk.ledger.hash_of_phase(self._id)
        return sample_proof(self._desk.vrf_secret, self._desk.scheduler.domain, self._id, review, block_hash)

    def _collector(self, proof: VrfProof) -> OpeningCollector:
        record, seed = self._record(), None
        if record.review.progress.phase is Phase.SAMPLED:
            seed = record.review.progress.seed
        elif proof.proof:
            seed = Hash32(vrf.proof_to_hash(proof.proof))
        return OpeningCollector(
            self._task,
            record.review,
            self._desk.peers,
            seed=seed,
            proof=proof.proof or None,
            reviewed=(self._id, record.segment),
        )

    async def _wait_out_reveals(self, proof: VrfProof, collector: OpeningCollector) -> VrfProof:
        """Start the reveal window, ask on until it has passed, and come back when who is silent can be slashed."""
        ledger = self._desk.ledger
        if proof.proof:
            sampled = partial(self._sample_call, proof)
            await ledger.ensure_soon(self._id, TaskSampled, sampled, TOO_EARLY)
        last = self._record().review.progress.phase_block + self._desk.reveal_window
        while ledger.block <= last and await collector.collect(self._desk.waits.opening):
            collector.take_revealed(self._record().events)
        return NO_PROOF

    def _sample_call(self, proof: VrfProof) -> Call:
        return sample(self._id, self._record().review, proof)

    def _record(self) -> ReviewRecord:
        record = self._desk.ledger.state.reviews.get(self._id)
        if record is None:
            raise Reorganised("The dispute is not on chain any more", "0x" + self._id.hex())
        return record

    @property
    def parties(self) -> frozenset[Address]:
        """Who holds something of the review; empty before the draw."""
        record = self._desk.ledger.state.reviews.get(self._id)
        return frozenset() if record is None else frozenset(record.review.progress.parties)
