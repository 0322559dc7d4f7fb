"""What the contract's slot of a task or a review holds, from its record."""

from __future__ import annotations

from troth.protocol.contract_types import Settled
from troth.protocol.errors import InvalidField
from troth.protocol.events import ReviewSettled
from troth.protocol.settlement import Outcome
from troth.protocol.state import ReviewRecord, TaskRecord
from troth.protocol.task import ENDING_BYTES, kept_hash, task_hash
from troth.protocol.types import Hash32


def task_slot(record: TaskRecord) -> Hash32:
    """The state's hash of a live task; of a settled one what a dispute needs, how many segments failed, the outcome."""
    if record.outcome is None:
        return task_hash(record.task)
    settled = record.settled
    if settled is None:
        return Hash32(int(record.outcome).to_bytes(32))
    ending = bytes((_not_accepted(record, settled), record.outcome))
    return Hash32(kept_hash(record.task, settled)[:-ENDING_BYTES] + ending)


def review_slot(record: ReviewRecord) -> Hash32:
    """The state's hash of a live review, the number of its outcome otherwise."""
    return task_hash(record.review) if record.outcome is None else Hash32(int(record.outcome).to_bytes(32))


def restated(record: TaskRecord, segment: int, decided: Outcome) -> Outcome:
    """How a settled task stands once a review has ``decided`` about a segment."""
    settled = record.settled
    if settled is None or record.outcome is None:
        raise InvalidField(
            "Only a settled task is reviewed", record.outcome, "A log is missing; follow the chain anew."
        )
    if decided in (Outcome.INDETERMINATE, settled.outcomes[segment]):
        return record.outcome
    if decided is Outcome.REJECTED:
        return Outcome.REJECTED
    return Outcome.ACCEPTED if _not_accepted(record, settled) == 1 else record.outcome


def _not_accepted(record: TaskRecord, settled: Settled) -> int:
    outcomes = list(settled.outcomes)
    for event in record.events:
        if isinstance(event, ReviewSettled) and event.outcome is not Outcome.INDETERMINATE:
            outcomes[event.segment] = event.outcome
    return sum(outcome != Outcome.ACCEPTED for outcome in outcomes)
