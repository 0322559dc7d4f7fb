"""Answers that fell on chain: their clients owe nothing for them, and say so by acknowledging them with nothing.

Without this a client's next word would be refused as one that pays less than it acknowledges, as long as the tab is.
"""

from __future__ import annotations

from troth.protocol.market.messages import summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.state import State
from troth.protocol.types import Hash32
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.tabs.database import Statement

ANY_SEGMENT = 255


def forgive_fallen(context: SchedulerContext, tab_id: Hash32) -> list[Statement]:
    """Whatever the chain voids of a tab's open orders is worth nothing from now on."""
    held, statements = context.client_tabs.get(tab_id), list[Statement]()
    if held is None:
        return statements
    state = context.ledger.state
    standing = context.standing.of(state, tab_id)
    # What is acknowledged stands no more. An order asks this of its whole tab, so only new numbers are looked at one
    # by one.
    standing.intersection_update(held.book.worth)
    for number in held.book.worth.keys() - standing:
        leaf = held.leaves.get(number)
        history = context.store.get(leaf.order) if leaf is not None and held.book.worth[number] else None
        if leaf is None or history is None:
            continue
        if fell(state, history):
            statements += context.client_tabs.serve(tab_id, number, 0, leaf.block)
        else:
            standing.add(number)
    return statements


def fell(state: State, history: OrderHistory) -> bool:
    """Whether an order is owed by nobody: by a case, a summons that nobody answered, or a conviction."""
    if state.is_voided(history.order_id, ANY_SEGMENT):
        return True
    asked = [(SummonsKind.RESULTS, 0), *((SummonsKind.CHECK, segment) for segment in range(history.segments))]
    summoned = [state.summons.get(summons_id(history.order_id, *place)) for place in asked]
    if any(record is not None and record.answered is False for record in summoned):
        return True
    parties, reference = (history.admitted.tab.payee, *history.admitted.nodes), history.order.reference_block
    return any(state.is_void(one, reference) for one in parties)
