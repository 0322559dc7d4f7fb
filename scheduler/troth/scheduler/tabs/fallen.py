"""Which answers that no voucher acknowledges are owed by nobody, since they fell on chain, and which are long overdue.

Clients acknowledge what fell with nothing. Without this their next word would be refused as one that pays less than it
acknowledges, as long as the tab is.
"""

from __future__ import annotations

from troth.protocol.market import court
from troth.protocol.market.messages import summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.state import State
from troth.protocol.market.tabs import is_acknowledged
from troth.protocol.market.types import Voucher
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


def overdue(context: SchedulerContext, voucher: Voucher, *, tolerated: int) -> int:
    """The worth of a tab's answers that its voucher leaves out although no case over them can begin any more.

    Whoever waits for a claim of them is served nothing more meanwhile: a claim may fall with all its answers, where a
    node that served one of them convicts itself. What was served until then is all that such a client and its friends
    can take, so it must not grow for as long as claims run.

    Until then a summons may run over them. A case that runs already permits to wait, and what fell is owed by nobody.
    Answers are looked up one by one only where all of them could be worth more than is ``tolerated``, and no further
    than to where they are: a client may leave thousands of small ones.
    """
    held, state = context.client_tabs.get(voucher.tab), context.ledger.state
    if held is None:
        return 0
    ended = context.ledger.block - court.last_opening_block(0, context.ledger.parameters)
    late = {
        leaf.order: held.book.worth.get(number, 0)
        for number, leaf in held.leaves.items()
        if leaf.block < ended and not is_acknowledged(voucher, number)
    }
    worth = sum(late.values())
    if worth <= tolerated:
        return worth
    doubted, worth = {record.state.order for record in state.cases.values() if record.live}, 0
    for order, fee in late.items():
        if worth > tolerated:
            break
        history = None if order in doubted else context.store.get(order)
        if history is not None and history.answered is not None and not fell(state, history):
            worth += fee
    return worth
