"""Answers that fell on chain: their clients owe nothing for them, and say so by acknowledging them with nothing.

Without this a client's next word would be refused as one that pays less than it acknowledges, as long as the tab is.
"""

from __future__ import annotations

from troth.protocol.market.messages import summons_id
from troth.protocol.market.state import State
from troth.protocol.market.types import SummonsKind
from troth.protocol.types import Hash32
from troth.scheduler.orders.desk import SchedulerContext
from troth.scheduler.orders.story import OrderHistory
from troth.scheduler.tabs.database import Statement

ANY_SEGMENT = 255


def forgive_fallen(desk: SchedulerContext, tab_id: Hash32) -> list[Statement]:
    """Whatever the chain voids of a tab's open orders is worth nothing from now on."""
    held, statements = desk.client_tabs.get(tab_id), list[Statement]()
    if held is None:
        return statements
    state = desk.ledger.state
    standing = desk.standing.of(state, tab_id)
    # What is acknowledged stands no more. An order asks this of its whole tab, so only new numbers are looked at one
    # by one.
    standing.intersection_update(held.book.worth)
    for number in held.book.worth.keys() - standing:
        leaf = held.leaves.get(number)
        story = desk.store.get(leaf.order) if leaf is not None and held.book.worth[number] else None
        if leaf is None or story is None:
            continue
        if fell(state, story):
            statements += desk.client_tabs.serve(tab_id, number, 0, leaf.block)
        else:
            standing.add(number)
    return statements


def fell(state: State, story: OrderHistory) -> bool:
    """Whether an order is owed by nobody: by a case, a summons that nobody answered, or a conviction."""
    if state.is_voided(story.order_id, ANY_SEGMENT):
        return True
    asked = [(SummonsKind.RESULTS, 0), *((SummonsKind.CHECK, segment) for segment in range(story.segments))]
    summoned = [state.summons.get(summons_id(story.order_id, *place)) for place in asked]
    if any(record is not None and record.answered is False for record in summoned):
        return True
    parties, reference = (story.admitted.tab.payee, *story.admitted.nodes), story.order.reference_block
    return any(state.is_void(one, reference) for one in parties)
