"""What a client should have acknowledged long ago: whoever waits for a claim of it is served nothing more meanwhile.

A claim may fall with all its answers, where a node that served one of them convicts itself. What was served until then
is all that such a client and its friends can take; so it must not grow for as long as claims run.
"""

from __future__ import annotations

from troth.protocol.market import court
from troth.protocol.market.tabs import is_acknowledged
from troth.protocol.market.types import Voucher
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.tabs.fallen import fell


def overdue(context: SchedulerContext, voucher: Voucher, *, tolerated: int) -> int:
    """The worth of a tab's answers that its voucher leaves out although no case over them can begin any more.

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
