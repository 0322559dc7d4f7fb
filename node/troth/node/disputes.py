"""When this node has a settled segment verified again, and how long its traces must be kept for that.

By policy (`[disputes] automatic`) an inferencer disputes every rejection of its own segment: whoever computed honestly
gets its slash back from those who were wrong. An undecided segment is its scheduler's to escalate; after half of the
dispute window the inferencer does it, since only then is its work paid.
"""

from __future__ import annotations

import logging

from troth.node.service.bench import Bench
from troth.node.service.standing import Standing
from troth.node.traces import StoredTrace
from troth.node.view import ChainView
from troth.protocol import calls
from troth.protocol.calls import Call
from troth.protocol.contract_types import Settled
from troth.protocol.identifiers import group_id
from troth.protocol.review import DRAW_WINDOW, bond_of, fresh, is_disputable, review_id
from troth.protocol.settlement import REWARD, Outcome
from troth.protocol.state import TaskRecord
from troth.protocol.task import Phase
from troth.protocol.types import Hash32

log = logging.getLogger(__name__)

FINAL_BLOCKS = 64
"""After so many blocks no reorganisation takes an outcome back, which would have the trace opened once more."""


def review_of(view: ChainView, trace: StoredTrace) -> Hash32 | None:
    """The live review of the trace's segment in which this node has a part; None if there is none."""
    id_ = Hash32(trace.review_id) if trace.review_id else review_id(Hash32(trace.task_id), trace.segment)
    record = view.review(id_)
    if record is None or not record.live:
        return None
    concerned = bool(trace.review_id) or (trace.inferred and record.review.progress.posts[0] == trace.root)
    return id_ if concerned else None


def is_forgettable(view: ChainView, trace: StoredTrace) -> bool:
    """Whether nobody can ask for the trace any more, whatever a reorganisation brings back."""
    ended = view.ended_at(Hash32(trace.task_id))
    if ended is None:
        return False
    record = view.review(review_id(Hash32(trace.task_id), trace.segment))
    if record is None:
        return view.head - ended > view.parameters.dispute_window + FINAL_BLOCKS
    return not record.live and view.head - record.events[-1].meta.block >= FINAL_BLOCKS


def closing_call(bench: Bench, standing: Standing) -> Call | None:
    """Ends a review that its scheduler left lying, for the one whose bond it holds."""
    progress, windows = standing.task.progress, bench.view.parameters
    if standing.task.terms.client != bench.operator.address:
        return None
    execution_class = bench.view.execution_class(standing.task.terms.execution_class)
    waits = {Phase.DISPUTED: min(windows.commit_window, DRAW_WINDOW), Phase.ASSIGNED: windows.commit_window}
    if execution_class is not None and not execution_class.exact:
        waits[Phase.COMMITTED] = windows.sample_window
    late = progress.phase in waits and bench.view.head > progress.phase_block + waits[progress.phase]
    return calls.close_review(standing.id, standing.task) if late else None


def dispute_call(bench: Bench, trace: StoredTrace) -> Call | None:
    """The dispute that an ended task of this trace calls for; None if none does."""
    record = bench.view.record(Hash32(trace.task_id))
    settled = None if record is None else record.settled
    if record is None or settled is None or not bench.disputes or not trace.inferred:
        return None
    segment, head = trace.segment, bench.view.head
    mine = record.task.parties_of(segment)[:1] == (bench.operator.address,)
    outcome = settled.outcomes[segment]
    if not mine or outcome == Outcome.ACCEPTED or not is_disputable(settled, segment):
        return None
    window = bench.view.parameters.dispute_window
    patience = window // 2 if outcome == Outcome.INDETERMINATE else 0
    open_ = settled.settled_block + patience <= head < settled.settled_block + window
    if not open_ or bench.view.review(review_id(Hash32(trace.task_id), segment)) is not None:
        return None
    if not _affordable(bench, record, settled, segment):
        return None
    return calls.dispute(Hash32(trace.task_id), record.task, settled, segment)


def reviewers_left(view: ChainView, record: TaskRecord, segment: int) -> int:
    """Members of the segment's group now who were no party of it."""
    layers, class_id = record.task.terms.segments[segment], record.task.terms.execution_class
    members = view.members(class_id, layers, view.head)
    return sum(member is not None for member in fresh(members, record.task.parties_of(segment)))


def _affordable(bench: Bench, record: TaskRecord, settled: Settled, segment: int) -> bool:
    """Whether there are reviewers, and the stake covers the bond and the price of a dispute that is lost."""
    view, terms = bench.view, record.task.terms
    execution_class, account = view.execution_class(terms.execution_class), view.account(bench.operator.address)
    if execution_class is None or account is None:
        return False
    if (left := reviewers_left(view, record, segment)) < execution_class.reviewers:
        group = "0x" + group_id(terms.execution_class, terms.segments[segment]).hex()
        log.debug("group %s has %d reviewers of %d: no dispute", group, left, execution_class.reviewers)
        return False
    if settled.outcomes[segment] == Outcome.INDETERMINATE:
        return True
    price = bond_of(execution_class, party=True) + REWARD * execution_class.unit * execution_class.reviewers
    return account.stake >= price
