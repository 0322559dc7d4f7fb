"""What a tab's key may ask back after its owner lost everything else: the best word, and the orders it leaves open."""

from __future__ import annotations

from troth.protocol.market import messages, tabs
from troth.protocol.market.bodies import OpenOrder, Recovered, Recovery, TabQuery
from troth.protocol.types import Hash32
from troth.scheduler.errors import BadSignature, Expired, UnknownOrder
from troth.scheduler.orders.desk import Desk
from troth.scheduler.orders.story import Story

QUERY_SECONDS = 300
"""How far a query's time may lie from this clock: one that leaked says nothing for ever."""


def recovered(desk: Desk, tab_id: Hash32, query: Recovery) -> Recovered:
    """The answer to a query; raises UnknownOrder, Expired, BadSignature."""
    held = desk.client_tabs.get(tab_id)
    if held is None:
        raise UnknownOrder("Nothing was ordered on this tab here", "0x" + tab_id.hex(), "Ask the tab's own scheduler.")
    if abs(desk.clock() - query.time) > QUERY_SECONDS:
        raise Expired("The query's time is not now", query.time, "Set the clock, and sign another query.")
    digest = messages.signing_digest(TabQuery(tab_id, query.time), desk.operator.domain)
    if not desk.key_check(held.tab.key, digest, query.signature):
        raise BadSignature("The tab key did not sign this query", None, messages.BY_ACCOUNT)
    if held.best is None:
        return Recovered(None, ())
    stories = (desk.store.by_number(tab_id, number) for number in tabs.outstanding(held.best.message))
    return Recovered(held.best, tuple(_open(story) for story in stories if story is not None))


def _open(story: Story) -> OpenOrder:
    admitted, answered, drawn = story.admitted, story.answered, story.drawn
    return OpenOrder(
        order=admitted.order,
        admission=admitted.admission,
        nodes=admitted.nodes,
        infer_proof=admitted.infer_proof,
        results=() if answered is None else answered.results,
        draw=None if drawn is None else drawn.draw,
        draw_proof=b"" if drawn is None else drawn.proof,
    )
