"""After the last token: the inferencers sign their roots, the verifiers repeat the work and commit to verdicts.

A verifier gets the same messages as an inferencer in a prefill (VeriLLM section 5.6), signs a commitment to its own
root, and only then is sent the inferencer's rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from troth.overlay.errors import OverlayError
from troth.overlay.operator import Operator
from troth.protocol import typed_data
from troth.protocol.announcement import announcement_to_wire
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import either_verdict
from troth.protocol.request import output_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import ZERO_HASH, Address, Hash32, TraceCommitment, TraceRoot, VerdictCommitment
from troth.protocol.wire import (
    Commit,
    Committed,
    Compare,
    Compared,
    Forward,
    Received,
    Rows,
    TraceCommitted,
)
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.errors import TaskFailed
from troth.scheduler.patience import MESSAGE_BYTES
from troth.scheduler.peers import Peers
from troth.scheduler.records import Generated, SegmentPosts
from troth.scheduler.task_errors import HopFailed, QuorumMissed
from troth.scheduler.trace_store import Link, TaskTraces

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Root:
    root: Hash32
    output_hash: Hash32
    signature: bytes | None
    judged: Hash32


@dataclass(frozen=True, slots=True)
class SignedCommitment:
    """A verifier's VerdictCommitment."""

    commitment: Hash32
    signature: bytes


@dataclass(frozen=True, slots=True)
class Committee:
    """Who verifies a segment: the nodes, and the id and segment that their statements are signed for.

    `review` is that id again where it is a segment's second verification.
    """

    verifiers: tuple[Address, ...]
    id: Hash32
    segment: int
    review: Hash32 | None = None

    @property
    def quorum(self) -> int:
        """Commitments that are needed."""
        return (len(self.verifiers) + 1) // 2


class SegmentVerification:
    """The verification of one segment of one generated output."""

    def __init__(
        self,
        task: AdmittedTask,
        generated: Generated,
        segment: int,
        *,
        traces: TaskTraces,
        peers: Peers,
        scheduler: Operator,
        timeout: float,
        committee: Committee | None = None,
    ) -> None:
        self._task = task
        self._generated = generated
        self._segment = segment
        self._traces = traces
        self._peers = peers
        self._scheduler = scheduler
        self._timeout = timeout
        self._committee = committee or Committee(task.assignment.verifiers(segment), task.task_id, segment)
        self._last = segment == task.segment_count - 1
        self._positions = len(task.request.prompt_tokens) + len(generated.tokens) - 1
        self._inferencer = task.assignment.candidates(segment)[generated.inferencers[segment]]

    async def run(self) -> SegmentPosts:
        """The segment's posts; raises HopFailed for the inferencer and QuorumMissed for the verifiers."""
        root = await self._inferencer_root()
        found = await self._collected(root)
        return SegmentPosts(
            inferencer=self._generated.inferencers[self._segment],
            root=root.root,
            root_signature=root.signature or b"",
            commitments=tuple(b"" if c is None else c.commitment for c in found),
            signatures=tuple(b"" if c is None else c.signature for c in found),
        )

    async def review(self, posted: TraceRoot) -> tuple[SignedCommitment | None, ...]:
        """The reviewers' commitments about what an inferencer `posted`; raises QuorumMissed."""
        judged = typed_data.struct_hash(posted)
        return await self._collected(_Root(posted.root, posted.output_hash, None, judged))

    async def _collected(self, root: _Root) -> tuple[SignedCommitment | None, ...]:
        upstream, committee = self._upstream_links(), self._committee
        found = await asyncio.gather(*[self._attempt(verifier, root, upstream) for verifier in committee.verifiers])
        committed = sum(commitment is not None for commitment in found)
        if committed < committee.quorum:
            raise QuorumMissed(
                f"{committed} of {len(committee.verifiers)} verifiers of segment {self._segment} committed, "
                f"{committee.quorum} are needed"
            )
        return tuple(found)

    async def _inferencer_root(self) -> _Root:
        try:
            frame = await self._peers.channel(self._inferencer).request(
                self._commit_request(), self._commit_payload(), self._timeout
            )
            answer = frame.header
            if not isinstance(answer, Committed):
                raise TaskFailed("The inferencer answered another question", type(answer).__name__)
            return self._checked_root(answer)
        except (OverlayError, ProtocolError, TaskFailed) as error:
            raise HopFailed(self._segment, self._inferencer, error) from error

    def _checked_root(self, answer: Committed) -> _Root:
        expected = output_hash(self._task.salt, self._generated.tokens) if self._last else ZERO_HASH
        if answer.output_hash != expected:
            raise TaskFailed("The inferencer signed another output", answer.output_hash.hex())
        message = TraceRoot(
            self._task.task_id,
            self._segment,
            self._generated.attempt,
            self._positions,
            Hash32(answer.root),
            expected,
        )
        typed_data.require_signer(message, self._scheduler.domain, answer.signature, self._inferencer)
        return _Root(Hash32(answer.root), expected, answer.signature, typed_data.struct_hash(message))

    async def _attempt(self, verifier: Address, root: _Root, upstream: dict[int, Link]) -> SignedCommitment | None:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._verify(verifier, root, upstream)
        except TimeoutError:
            reason: object = f"silent for {self._timeout:g} s"
        except (OverlayError, ProtocolError, TaskFailed) as error:
            reason = error
        self._peers.note_failure(verifier)
        log.warning("verifier %s of segment %d is left out: %s", verifier, self._segment, reason)
        return None

    async def _verify(self, verifier: Address, root: _Root, upstream: dict[int, Link]) -> SignedCommitment:
        channel = self._peers.channel(verifier)
        for number, (start, count) in enumerate(self._chunks()):
            header, payload = self._forward_request(start, count, upstream, first=number == 0)
            rows = (await channel.request(header, payload, self._timeout)).header
            if not isinstance(rows, Rows) or (rows.start, rows.count) != (start, count):
                raise TaskFailed("The verifier answered another question", type(rows).__name__)
        promised = await self._ask_for_trace_commitment(verifier)
        for start, count in self._chunks():
            rows_sent = self._traces.rows(self._segment, self._generated.attempt, start, count)
            comparison = self._compare_request(start, count, root)
            answer = (await channel.request(comparison, rows_sent, self._timeout)).header
            if isinstance(answer, Compared):
                return self._checked_commitment(verifier, answer, root, promised)
            if not isinstance(answer, Received):
                raise TaskFailed("The verifier answered another question", type(answer).__name__)
        raise TaskFailed("The verifier was sent all rows and gave no verdict")

    async def _ask_for_trace_commitment(self, verifier: Address) -> Hash32:
        channel = self._peers.channel(verifier)
        answer = (await channel.request(self._commit_request(), self._commit_payload(), self._timeout)).header
        if not isinstance(answer, TraceCommitted):
            raise TaskFailed("The verifier did not commit to its own trace", type(answer).__name__)
        promised = Hash32(answer.commitment)
        committee = self._committee
        message = TraceCommitment(committee.id, committee.segment, self._generated.attempt, promised)
        typed_data.require_signer(message, self._scheduler.domain, answer.signature, verifier)
        return promised

    def _checked_commitment(
        self, verifier: Address, answer: Compared, root: _Root, promised: Hash32
    ) -> SignedCommitment:
        commitment = Hash32(answer.commitment)
        if either_verdict(commitment, Hash32(answer.other)) != promised:
            # It has seen the rows since: what it commits to now may be a copy of them.
            raise TaskFailed("The verifier judges by another trace than the one it committed to")
        committee = self._committee
        message = VerdictCommitment(committee.id, committee.segment, self._generated.attempt, commitment, root.judged)
        typed_data.require_signer(message, self._scheduler.domain, answer.signature, verifier)
        return SignedCommitment(commitment, answer.signature)

    def _commit_request(self) -> Commit:
        return Commit(
            task_id=self._task.task_id,
            segment=self._segment,
            attempt=self._generated.attempt,
            positions=self._positions,
            tokens=len(self._generated.tokens) if self._last else 0,
        )

    def _commit_payload(self) -> bytes:
        return tokens_to_bytes(self._generated.tokens) if self._last else b""

    def _forward_request(
        self, start: int, count: int, upstream: dict[int, Link], *, first: bool
    ) -> tuple[Forward, bytes]:
        part, prefix = announcement_to_wire(self._task.announcement(self._segment)) if first else (None, b"")
        link = upstream[start + count - 1] if self._segment else None
        header = Forward(
            task_id=self._task.task_id,
            segment=self._segment,
            attempt=self._generated.attempt,
            start=start,
            count=count,
            kind="rows" if link else "tokens",
            emit=False,
            upstream=link.row if link else None,
            countersignature=link.countersignature if link else None,
            announcement=part,
            request_size=len(prefix),
            review=self._committee.review if first else None,
        )
        return header, prefix + self._inputs(start, count)

    def _inputs(self, start: int, count: int) -> bytes:
        """Tokens for segment 0, both for segment 1 (the rows bind them), rows after that."""
        sequence = [*self._task.request.prompt_tokens, *self._generated.tokens]
        tokens = tokens_to_bytes(sequence[start : start + count]) if self._segment <= 1 else b""
        if not self._segment:
            return tokens
        return tokens + self._traces.rows(self._segment - 1, self._generated.attempt, start, count)

    def _compare_request(self, start: int, count: int, root: _Root) -> Compare:
        final = start + count == self._positions
        end = self._traces.last_link(self._segment, self._generated.attempt) if final else None
        return Compare(
            task_id=self._task.task_id,
            segment=self._segment,
            attempt=self._generated.attempt,
            inferencer=self._inferencer,
            positions=self._positions,
            start=start,
            count=count,
            row=end.row if end else None,
            root=root.root if final else None,
            output_hash=root.output_hash if final else None,
            root_signature=root.signature if final else None,
        )

    def _upstream_links(self) -> dict[int, Link]:
        if not self._segment:
            return {}
        return {link.row.position: link for link in self._traces.links(self._segment - 1, self._generated.attempt)}

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """The same cuts as in the pipeline's prefill, so that each ends at a row that the inferencer signed."""
        size = max(1, MESSAGE_BYTES // self._task.row_bytes)
        for start in range(0, self._positions, size):
            yield start, min(size, self._positions - start)


async def verify_all(segments: Iterable[SegmentVerification]) -> tuple[SegmentPosts, ...]:
    """All segments at once; the first failure ends the others and is raised."""
    tasks = [asyncio.create_task(segment.run()) for segment in segments]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
