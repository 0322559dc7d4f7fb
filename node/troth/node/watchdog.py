"""Looks after this node's own commitments when a scheduler does not: posts them, and reveals, with its own gas.

With every new block, for each stored trace of a live task:
  opened or assigned, half of the commit window gone   assign, then post the own root or commitment
  a quorum posted that way, the same time               seal
  sampled (exact: committed), half of the reveal window  reveal the own opening
A task that ended FINAL_BLOCKS ago frees its trace. Design.md section 4, steps 6 and 8.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, ChainRejected
from troth.chain.keystore import Key
from troth.node.errors import NodeError
from troth.node.metrics import Metrics
from troth.node.service.bench import Bench
from troth.node.service.committing import signed_root
from troth.node.service.opening import Committed, open_tiles, own_commitment, sampling_seed, stands_on_chain
from troth.node.traces import UNDECIDED, StoredTrace
from troth.overlay.logs import task_bound
from troth.protocol import calls
from troth.protocol.assignment import assignment_alpha
from troth.protocol.calls import Call
from troth.protocol.contract_types import VrfProof
from troth.protocol.errors import ProtocolError
from troth.protocol.task import Phase, Task
from troth.protocol.typed_data import struct_hash
from troth.protocol.types import ZERO_HASH, Hash32, TraceRoot, VerdictCommitment
from troth.protocol.vrf_hints import hints
from troth.protocol.wire import AnnouncementPart

log = logging.getLogger(__name__)

FINAL_BLOCKS = 64
"""After so many blocks no reorganisation takes an outcome back, which would have the trace opened once more."""


class Watchdog:
    """Runs beside the service; `step` looks once."""

    def __init__(self, bench: Bench, chain: Chain, key: Key, metrics: Metrics, *, interval: float = 2.0) -> None:
        self._bench = bench
        self._chain = chain
        self._key = key
        self._metrics = metrics
        self._interval = interval
        self._seen = -1

    async def run(self) -> None:
        """Look at every new block until cancelled. A failure is logged and tried again at the next block."""
        while True:
            if self._bench.view.head != self._seen:
                self._seen = self._bench.view.head
                await self.step()
            await asyncio.sleep(self._interval)

    async def step(self) -> None:
        """Send what is due now."""
        for trace in await self._bench.write(lambda: list(self._bench.traces.all())):
            with task_bound(trace.task_id):
                try:
                    await self._look_after(trace)
                except (ChainError, NodeError, ProtocolError) as error:
                    self._note(trace, error)
                except Exception:
                    # One task must not end the node, which has others to reveal for.
                    log.exception("this task is left alone for now")

    async def _look_after(self, trace: StoredTrace) -> None:
        view = self._bench.view
        ended_at = view.ended_at(Hash32(trace.task_id))
        if ended_at is not None:
            if view.head - ended_at >= FINAL_BLOCKS:
                await self._bench.write(lambda: self._bench.traces.drop(trace))
            return
        task = view.task(Hash32(trace.task_id))
        call = None if task is None else await self.due(trace, task)
        if call is None:
            return
        log.warning("the scheduler is late: sending %s myself", call.function)
        receipt = await self._chain.execute(call, self._key)
        self._metrics.own_posts.labels(call=call.function).inc()
        log.info("%s is in block %d", call.function, receipt.block)
        await view.until(lambda: view.head >= receipt.block, 10.0)

    async def due(self, trace: StoredTrace, task: Task) -> Call | None:
        """The call that this trace needs now, if any."""
        progress, view = task.progress, self._bench.view
        announced = msgspec.json.decode(trace.announcement, type=AnnouncementPart)
        if tuple(segment.end for segment in task.terms.segments) != announced.ends:
            # Nothing of this node can be posted there; the order that the client signed does not fix the split.
            log.debug("the task was opened with another split of the layers than was announced")
            return None
        execution_class = view.execution_class(task.terms.execution_class)
        if execution_class is None:
            return None
        if progress.phase in (Phase.OPENED, Phase.ASSIGNED):
            half = progress.phase_block + view.parameters.commit_window // 2
            return self._commit_call(trace, task) if view.head > half else None
        revealing = progress.phase is Phase.SAMPLED or execution_class.exact
        half = progress.phase_block + view.parameters.reveal_window // 2
        if not revealing or view.head <= half or not stands_on_chain(task, trace):
            return None
        committed = own_commitment(view, self._bench.operator.address, trace)
        return await self._reveal_call(trace, committed)

    def _commit_call(self, trace: StoredTrace, task: Task) -> Call | None:
        if not trace.inferred and trace.verdict == UNDECIDED:
            return None
        id_, progress = Hash32(trace.task_id), task.progress
        if progress.phase is Phase.OPENED:
            return calls.assign(id_, task, self._assignment_proofs(trace, task))
        posts = task.posts_of(trace.segment) or (ZERO_HASH,) * (1 + task.verifiers)
        if trace.inferred and posts[0] == ZERO_HASH:
            return calls.commit_inference(task, signed_root(trace))
        # Beside another root or another length the commitment might not open, or say no to what was never judged.
        if not trace.inferred and posted_claim(task, trace) == trace.judged and trace.commitment not in posts:
            commitment, judged = Hash32(trace.commitment), Hash32(trace.judged)
            return calls.commit_verification(
                task, VerdictCommitment(id_, trace.segment, trace.attempt, commitment, judged)
            )
        return calls.seal(id_, task) if self._is_sealable(task) and self._is_first_party(task) else None

    def _is_sealable(self, task: Task) -> bool:
        quorum = (task.verifiers + 1) // 2
        segments = [task.posts_of(segment) for segment in range(task.progress.segments)]
        return all(
            posts and posts[0] != ZERO_HASH and sum(post != ZERO_HASH for post in posts[1:]) >= quorum
            for posts in segments
        )

    def _is_first_party(self, task: Task) -> bool:
        """Only one node seals: the first that posted. Otherwise all would pay for the same."""
        return task.parties_of(0)[0] == self._bench.operator.address

    def _assignment_proofs(self, trace: StoredTrace, task: Task) -> list[VrfProof]:
        announcement = msgspec.json.decode(trace.announcement, type=AnnouncementPart)
        view, terms = self._bench.view, task.terms
        key = view.vrf_key(terms.scheduler)
        if key is None:
            return []
        proofs = []
        for index, segment in enumerate(terms.segments):
            size = len(view.members(terms.execution_class, segment, terms.reference_block))
            alpha = assignment_alpha(
                view.domain, Hash32(trace.task_id), index, group_size=size, reference_block=terms.reference_block
            )
            proof = announcement.proofs[index]
            proofs.append(VrfProof(proof, tuple(hints(key, alpha, proof))))
        return proofs

    async def _reveal_call(self, trace: StoredTrace, committed: Committed) -> Call | None:
        revealed = committed.task.progress.revealed
        width = committed.task.posts_per_segment
        if revealed and revealed[trace.segment * width + committed.party] != ZERO_HASH:
            return None
        seed = await sampling_seed(self._bench.view, trace, committed, None)
        opening = await open_tiles(self._bench, trace, committed, seed)
        return calls.reveal(Hash32(trace.task_id), committed.task, trace.segment, committed.party, opening)

    def _note(self, trace: StoredTrace, error: Exception) -> None:
        """A rejected call usually means that somebody was faster; it is tried again with the next state."""
        level = logging.INFO if isinstance(error, ChainRejected) else logging.WARNING
        log.log(level, "own post not sent: %s", error)


def posted_claim(task: Task, trace: StoredTrace) -> Hash32 | None:
    """The struct hash of what the inferencer of a trace's segment posted; None as long as there is nothing."""
    progress, posts = task.progress, task.posts_of(trace.segment)
    if not posts or posts[0] == ZERO_HASH:
        return None
    outputs = progress.output_hash if trace.segment + 1 == progress.segments else ZERO_HASH
    id_ = Hash32(trace.task_id)
    return struct_hash(TraceRoot(id_, trace.segment, progress.attempt, progress.positions, posts[0], outputs))
