"""Where a stored trace stands on chain: in its task, or in the second verification of its segment."""

from __future__ import annotations

from dataclasses import dataclass

from troth.node.traces import StoredTrace
from troth.node.view import ChainView
from troth.protocol.task import Task
from troth.protocol.typed_data import struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, TraceRoot


@dataclass(frozen=True, slots=True)
class Standing:
    """A live task or review, the id that its commitments are made for, and the trace's segment in it."""

    id: Hash32
    segment: int
    task: Task

    def posts(self) -> tuple[Hash32, ...]:
        """The root, then the commitments of the segment; empty before the first."""
        return self.task.posts_of(self.segment)

    def party_of(self, me: Address, trace: StoredTrace) -> int:
        """0 for the inferencer, 1 + index for a verifier."""
        return 0 if trace.inferred else 1 + self.task.verifiers_of(self.segment).index(me)

    def holds(self, trace: StoredTrace) -> bool:
        """Whether this trace, and not that of another attempt, was committed to."""
        return self.task.progress.attempt == trace.attempt and own_post(trace) in self.posts()

    def claim(self) -> Hash32 | None:
        """The struct hash of what the segment's inferencer posted; None as long as there is nothing."""
        progress, posts = self.task.progress, self.posts()
        if not posts or posts[0] == ZERO_HASH:
            return None
        outputs = progress.output_hash if self.segment + 1 == progress.segments else ZERO_HASH
        return struct_hash(TraceRoot(self.id, self.segment, progress.attempt, progress.positions, posts[0], outputs))


def own_post(trace: StoredTrace) -> bytes:
    """What stands on chain for a trace: an inferencer's root, a verifier's verdict commitment."""
    return trace.root if trace.inferred else trace.commitment


def standing_of(view: ChainView, trace: StoredTrace, review: Hash32 | None = None) -> Standing | None:
    """Where the trace stands in its task, or in ``review``; None unless that is live."""
    if review is None:
        task = view.task(Hash32(trace.task_id))
        return None if task is None else Standing(Hash32(trace.task_id), trace.segment, task)
    record = view.review(review)
    if record is None or not record.live or (record.task_id, record.segment) != (trace.task_id, trace.segment):
        return None
    return Standing(review, 0, record.review)
