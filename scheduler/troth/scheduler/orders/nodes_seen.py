"""GET /v1/nodes/{operator}: how this scheduler sees a node, so that its operator learns why no work comes.

Nothing is dialled because somebody asks: the scheduler tries all nodes of its groups anyway, and tells what came of
it. So nobody can have it connect to a third party, and an answer costs a look into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from troth.protocol.identifiers import group_id
from troth.protocol.market import messages
from troth.protocol.market.prices import most_asked, within
from troth.protocol.market.state import Party
from troth.protocol.market.types import GroupEntry, Role
from troth.protocol.types import Address, Segment
from troth.scheduler.errors import UnknownClass
from troth.scheduler.nodes.peers import NodeSeen
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.offers import ClassOffer


def seen_of(context: SchedulerContext, node: Address) -> dict[str, Any]:
    """Connection, draws, and what keeps orders from a node, as JSON."""
    seen = context.peers.seen(node)
    return {
        "operator": node,
        "block": context.ledger.block,
        "connected": seen.connected,
        "failure": seen.failure,
        "drawn": seen.drawn,
        "chosen": seen.chosen,
        "why": list(_reasons(context, node)),
        "note": _note(seen),
    }


def _note(seen: NodeSeen) -> str:
    """What is no hindrance, and may explain that nothing came."""
    if seen.drawn and not seen.chosen:
        return f"it was drawn {seen.drawn} times, and others that were drawn with it were faster"
    return "" if seen.drawn else "it was in no draw since this scheduler started: draws go by seats"


def _reasons(context: SchedulerContext, node: Address) -> Iterator[str]:
    party = context.ledger.state.parties.get(node)
    if party is None or party.role is not Role.NODE:
        yield "it is not registered as a node"
        return
    if party.exit_block:
        yield "it is leaving, and is in no group any more"
        return
    try:
        offer = context.offers.offer(party.execution_class, context.ledger.state)
    except UnknownClass:
        yield "this scheduler does not serve its execution class"
        return
    yield from _of_groups(context, party, offer)
    yield from _of_connection(context, node)


def _of_groups(context: SchedulerContext, party: Party, offer: ClassOffer) -> Iterator[str]:
    """Whether it is in a group that is offered, with seats, an ask that is paid, and a tab."""
    state, block, found = context.ledger.state, context.ledger.block, False
    for span in offer.spans:
        group = group_id(offer.served.class_id, span)
        entry = next((one for one in state.members_at(group, block) if one.operator == party.operator), GroupEntry())
        if entry.operator != party.operator:
            continue
        found = True
        if not entry.seats:
            yield f"it has no seats in the group of layers {span.first}:{span.end}"
        if not within(state.ask_at(group, party.operator, block), _most(offer, span)):
            listed = _most(offer, span)
            most = f"{listed.prompt},{listed.cached},{listed.written}"
            yield f"for layers {span.first}:{span.end} it asks more than {most}, which is what this scheduler pays"
    if not found:
        spans = ", ".join(f"{span.first}:{span.end}" for span in offer.spans)
        yield f"it is in none of the groups that this scheduler offers: {spans}"
        return
    tab = state.tab_state(messages.tab_id(context.node_tabs.tab(party.operator)))
    if not tab.known or not tab.balance:
        yield "this scheduler has no tab with it yet, or an empty one"


def _most(offer: ClassOffer, span: Segment) -> Any:
    listed = offer.prices
    prices = (listed.prompt, listed.cached, listed.written)
    return most_asked(prices, listed.node_share, span.end - span.first, offer.model.layers)


def _of_connection(context: SchedulerContext, node: Address) -> Iterator[str]:
    seen = context.peers.seen(node)
    if seen.failure and not seen.connected:
        yield f"it cannot be reached: {seen.failure}"
