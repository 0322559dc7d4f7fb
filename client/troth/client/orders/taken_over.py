"""Orders of another copy of this folder, or of before a backup, that still ran when they were taken over.

Their requests are not here, so that nobody can follow them: their scheduler is asked again until it shows what they
cost. One of which nothing can be summoned any more is given up once its scheduler says that it failed.
"""

from __future__ import annotations

from contextlib import aclosing

from troth.client.orders.failing import unknown_until
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.paying import give_up
from troth.client.orders.session import PayerSession, TabContext
from troth.client.tabs.recovery import recover
from troth.protocol.market.bodies import OpenOrder
from troth.protocol.types import ZERO_HASH


def is_undecided(entry: OrderRecord) -> bool:
    """Whether nobody has shown yet what an order that was taken over costs."""
    shown = entry.read("recovered", OpenOrder) if entry.phase is Phase.RECOVERED else None
    return shown is not None and shown.draw is None


async def find_out(session: PayerSession, tab_context: TabContext, entry: OrderRecord) -> None:
    """Ask its scheduler for the draw, and later whether it failed; raises what asking raises."""
    calls = await session.calls(tab_context)
    await recover(session, tab_context, calls)
    entry = session.journal.entry(entry.identifier)
    shown = entry.read("recovered", OpenOrder)
    if shown is None or not is_undecided(entry) or entry.paid is not None:
        return
    last = unknown_until(shown.order.message, session.parameters) + session.parameters.lag
    if session.block <= last:
        return
    # Whoever knows its id hears that it failed, once its prompt is kept no longer; the salt is not here.
    async with aclosing(calls.again(entry.identifier, ZERO_HASH)) as lines:
        line = await anext(lines, None)
    if line is not None and line.get("type") == "failed":
        give_up(session, entry, "given up by its scheduler, before it was taken over here")
