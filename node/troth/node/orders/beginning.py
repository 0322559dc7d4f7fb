"""Records that begin after their node was registered: what it may have signed before is not in them.

A node whose disk was lost has its key from a backup, and no word of what it signed. Any of its schedulers could send an
order again that it served, and convict it by its second result. The same holds for a copy of yesterday: records say at
which block they were in use last.
"""

from __future__ import annotations

from dataclasses import replace

from troth.node.orders.context import NodeContext
from troth.protocol.market.checks import first_reference_block
from troth.protocol.market.views import parameters_of


async def with_first_block(context: NodeContext) -> NodeContext:
    """The context of a node that takes no order which it may have signed before its records began."""
    ground, words = context.ground, context.stores.words
    parameters, party = parameters_of(ground.state), ground.state.parties.get(context.me)
    begun = await context.write(lambda: words.beginning(ground.block, parameters.reference_age))
    if party is None:
        return context
    # A home that is used again on a chain that began anew has a beginning which that chain has yet to reach.
    begun = min(begun, ground.block)
    return replace(context, first=first_reference_block(begun, party.registered.block, parameters))


def begins_later(context: NodeContext | None, block: int) -> list[str]:
    """Why no work comes yet, after such a beginning."""
    if context is None or block > context.first:
        return []
    return [f"its records are new, and older ones may be lost: it takes orders over blocks from {context.first} on"]
