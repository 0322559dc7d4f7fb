"""Whether a segment of a settled task can be disputed now, by whom at what price: asked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.contract_types import Settled
from troth.protocol.errors import NotDisputable
from troth.protocol.identifiers import group_id
from troth.protocol.review import bond_of, fresh, is_disputable, profits, review_id
from troth.protocol.settlement import REWARD, Outcome
from troth.protocol.state import State, TaskRecord
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Dispute:
    """A dispute that the contract would take. Amounts in wei.

    Args:
        party: the bond comes out of the disputer's stake, else out of its escrow.
        bond: put up now; back if the outcome changes or stays undecided.
        at_most: what the disputer loses if the outcome stands.
        last_block: the last block in which the dispute can be mined.
    """

    record: TaskRecord
    settled: Settled
    segment: int
    party: bool
    bond: int
    at_most: int
    last_block: int


def dispute_of(
    state: State, task_id: Hash32, segment: int | None, disputer: Address, *, block: int, window: int
) -> Dispute:
    """The dispute of a task's segment; without a ``segment``, of the only one that can be disputed.

    ``block`` is the last one, ``window`` the contract's dispute window. Raises NotDisputable saying why there is none.
    """
    record = state.tasks.get(task_id)
    settled = None if record is None else record.settled
    if record is None or settled is None:
        what = "The task was never opened" if record is None else "The task is not settled"
        raise NotDisputable(what, task_id, "Only an outcome can be disputed; see `troth audit` for the task.")
    last = settled.settled_block + window
    if block >= last:
        raise NotDisputable("The dispute window has passed", f"block {block}", f"It ended with block {last}.")
    chosen = _segment(state, task_id, settled, segment)
    definition = state.classes[record.task.terms.execution_class]
    left = reviewers_left(state, block, record, chosen)
    if left < definition.reviewers:
        remedy = f"The class asks for {definition.reviewers} nodes that did not verify before; wait for more to join."
        raise NotDisputable("There are too few nodes to verify again", left, remedy)
    party = profits(record.task, settled, chosen, disputer)
    price = 0 if settled.outcomes[chosen] == Outcome.INDETERMINATE else bond_of(definition, party=party)
    paid_later = definition.unit * REWARD * definition.reviewers if price and party else 0
    return Dispute(record, settled, chosen, party, price, price + paid_later, last)


def reviewers_left(state: State, block: int, record: TaskRecord, segment: int) -> int:
    """Members of a segment's group at ``block`` who were none of its parties."""
    terms = record.task.terms
    group = state.groups.get(group_id(terms.execution_class, terms.segments[segment]))
    members = [] if group is None else group.members_at(block)
    return sum(member is not None for member in fresh(members, record.task.parties_of(segment)))


def _segment(state: State, task_id: Hash32, settled: Settled, segment: int | None) -> int:
    count = len(settled.outcomes)
    if segment is not None and not 0 <= segment < count:
        raise NotDisputable("The task has no such segment", segment, f"It has segments 0 to {count - 1}.")
    wanted = range(count) if segment is None else (segment,)
    found = [one for one in wanted if is_disputable(settled, one) and review_id(task_id, one) not in state.reviews]
    if segment is None and len(found) > 1:
        # Whoever does not say which means the one that failed.
        found = [one for one in found if settled.outcomes[one] != Outcome.ACCEPTED] or found
    if not found:
        raise NotDisputable(
            "Nothing of the task can be disputed (any more)", task_id, "Each segment is disputed at most once."
        )
    if len(found) > 1:
        raise NotDisputable("Several segments can be disputed", found, "Name one with --segment.")
    return found[0]
