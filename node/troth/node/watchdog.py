"""Looks after this node's own commitments when a scheduler does not: posts them, and reveals, with its own gas.

With every new block, for each stored trace of a live task:
  opened or assigned, half of the commit window gone   assign, then post the own root or commitment
  a quorum posted that way, the same time               seal
  sampled (exact: committed), half of the reveal window  reveal the own opening
  rejected, by others, the segment that this node inferred   dispute it, if the operator lets it
The same for a segment's second verification. Design.md section 4, steps 6, 8 and 9.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from troth.chain.adapter import Chain
from troth.chain.errors import ChainError, ChainRejected
from troth.chain.keystore import Key
from troth.node.disputes import closing_call, dispute_call, is_forgettable, review_of
from troth.node.errors import NodeError
from troth.node.metrics import Metrics
from troth.node.service.bench import Bench
from troth.node.service.committing import signed_root
from troth.node.service.opening import open_tiles, own_commitment, sampling_seed
from troth.node.service.standing import Standing, standing_of
from troth.node.traces import UNDECIDED, StoredTrace
from troth.overlay.logs import task_bound
from troth.protocol import calls
from troth.protocol.assignment import assignment_alpha
from troth.protocol.calls import Call
from troth.protocol.contract_types import VrfProof
from troth.protocol.errors import ProtocolError
from troth.protocol.task import Phase, Task
from troth.protocol.types import ZERO_HASH, Hash32, VerdictCommitment
from troth.protocol.vrf_hints import hints
from troth.protocol.wire import AnnouncementPart

log = logging.getLogger(__name__)


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
        if is_forgettable(view, trace):
            await self._bench.write(lambda: self._bench.traces.drop(trace))
            return
        call = await self.due(trace)
        if call is None:
            return
        log.warning("sending %s myself", call.function)
        receipt = await self._chain.execute(call, self._key)
        self._metrics.own_posts.labels(call=call.function).inc()
        log.info("%s is in block %d", call.function, receipt.block)
        await view.until(lambda: view.head >= receipt.block, 10.0)

    async def due(self, trace: StoredTrace) -> Call | None:
        """The call that this trace needs now, if any."""
        view = self._bench.view
        review = review_of(view, trace)
        if review is not None:
            standing = standing_of(view, trace, review)
            if standing is None:
                return None
            return closing_call(self._bench, standing) or await self._post_or_reveal(trace, standing)
        standing = standing_of(view, trace)
        return dispute_call(self._bench, trace) if standing is None else await self._first_round(trace, standing)

    async def _first_round(self, trace: StoredTrace, standing: Standing) -> Call | None:
        announced = msgspec.json.decode(trace.announcement, type=AnnouncementPart)
        if tuple(segment.end for segment in standing.task.terms.segments) != announced.ends:
            # Nothing of this node can be posted there; the order that the client signed does not fix the split.
            log.debug("the task was opened with another split of the layers than was announced")
            return None
        return await self._post_or_reveal(trace, standing)

    async def _post_or_reveal(self, trace: StoredTrace, standing: Standing) -> Call | None:
        progress, view = standing.task.progress, self._bench.view
        execution_class = view.execution_class(standing.task.terms.execution_class)
        if execution_class is None:
            return None
        if progress.phase in (Phase.OPENED, Phase.ASSIGNED):
            half = progress.phase_block + view.parameters.commit_window // 2
            return self._commit_call(trace, standing) if view.head > half else None
        revealing = progress.phase is Phase.SAMPLED or (execution_class.exact and progress.phase is Phase.COMMITTED)
        half = progress.phase_block + view.parameters.reveal_window // 2
        if not revealing or view.head <= half or not standing.holds(trace):
            return None
        return await self._reveal_call(trace, standing)

    def _commit_call(self, trace: StoredTrace, standing: Standing) -> Call | None:
        if not trace.inferred and trace.verdict == UNDECIDED:
            return None
        task = standing.task
        if task.progress.phase is Phase.OPENED:
            return calls.assign(standing.id, task, self._assignment_proofs(trace, task))
        posts = standing.posts() or (ZERO_HASH,) * (1 + task.verifiers)
        if trace.inferred and posts[0] == ZERO_HASH:
            return calls.commit_inference(task, signed_root(trace))
        # Beside another root or another length the commitment might not open, or say no to what was never judged.
        if not trace.inferred and standing.claim() == trace.judged and trace.commitment not in posts:
            commitment, judged = Hash32(trace.commitment), Hash32(trace.judged)
            return calls.commit_verification(
                task, VerdictCommitment(standing.id, standing.segment, trace.attempt, commitment, judged)
            )
        return calls.seal(standing.id, task) if self._is_sealable(task) and self._is_first_party(task) else None

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

    async def _reveal_call(self, trace: StoredTrace, standing: Standing) -> Call | None:
        review = None if standing.id == trace.task_id else standing.id
        committed = own_commitment(self._bench.view, self._bench.operator.address, trace, review)
        revealed = standing.task.progress.revealed
        place = standing.segment * standing.task.posts_per_segment + committed.party
        if revealed and revealed[place] != ZERO_HASH:
            return None
        seed = await sampling_seed(self._bench.view, committed, None)
        opening = await open_tiles(self._bench, trace, committed, seed)
        return calls.reveal(standing.id, standing.task, standing.segment, committed.party, opening)

    def _note(self, trace: StoredTrace, error: Exception) -> None:
        """A rejected call usually means that somebody was faster; it is tried again with the next state."""
        level = logging.INFO if isinstance(error, ChainRejected) else logging.WARNING
        log.log(level, "own post not sent: %s", error)
