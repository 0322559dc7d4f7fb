"""What a scheduler is told that asks what it promised: the best voucher of its tab, and what that leaves open."""

from __future__ import annotations

from troth.node.earning.leaf import Leaf, Stage
from troth.node.orders.context import NodeContext
from troth.protocol.market import canonical
from troth.protocol.market.leaves import InferenceLeaf
from troth.protocol.market.messages import Signed, tab_id
from troth.protocol.market.reminders import PROMISES_SHOWN, OpenPromise, Reminder
from troth.protocol.market.types import Tab
from troth.protocol.types import Address
from troth.protocol.wire_market import Remind, Reminded


async def reminded(context: NodeContext, sender: Address, header: Remind) -> tuple[Reminded, bytes]:
    """A page of what this node holds of the sender's tab."""
    books, tab = context.stores.books, tab_id(Tab(sender, context.me, sender))

    def read() -> Reminder:
        open_ = [leaf for leaf in books.open_leaves(tab) if leaf.number > header.after]
        return Reminder(books.voucher(tab), tuple(_shown(leaf) for leaf in open_[:PROMISES_SHOWN]))

    return Reminded(), canonical.encode(await context.write(read))


def _shown(leaf: Leaf) -> OpenPromise:
    if leaf.stage is not Stage.DONE:
        return OpenPromise(leaf.promise)
    shown = leaf.shown()
    if isinstance(shown, InferenceLeaf):
        return OpenPromise(leaf.promise, result=Signed(shown.result, shown.result_signature))
    return OpenPromise(leaf.promise, verdict=Signed(shown.check.verdict, shown.check.signature))
