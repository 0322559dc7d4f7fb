"""The draw: beta by VRF over the order, over exactly these results, with the newest block; and the log's promise."""

from __future__ import annotations

from troth.protocol import vrf
from troth.protocol.market import log_data, messages
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.messages import Signed
from troth.protocol.market.types import Draw, Inclusion
from troth.protocol.types import Hash32
from troth.scheduler.log.entries import LogBook
from troth.scheduler.log.lines import line_with
from troth.scheduler.orders.desk import SchedulerContext
from troth.scheduler.orders.steps import DrawnStep
from troth.scheduler.orders.story import OrderHistory
from troth.scheduler.tabs.due import inference_fees


async def draw(desk: SchedulerContext, log: LogBook, story: OrderHistory) -> DrawnStep:
    """Draw over an order's results; journalled before it is returned. The lag of its nodes runs from its block."""
    proof = vrf.prove(desk.vrf_secret, messages.draw_alpha(story.order_id))
    fresh = fresh_draw(desk, story, proof)
    entry, statements = log.assign(story)
    drawn = DrawnStep(fresh, proof, _inclusion(desk, story, fresh.message, proof, entry))
    due = fresh.message.block_number + desk.ledger.parameters.lag
    await desk.store.note(story, drawn, *statements, *inference_fees(desk.node_tabs, story, due))
    return drawn


async def draw_again(desk: SchedulerContext, story: OrderHistory) -> DrawnStep:
    """The same draw with the newest block, for a client that was away when the first one came.

    Only while the first one's time for the secret runs: else a client could keep its secrets as long as it likes.
    """
    drawn = story.drawn
    assert drawn is not None
    block = desk.ledger.block
    late = block > story.drawn_first + desk.ledger.parameters.lag // 2
    if story.revealed is not None or late or block <= drawn.draw.message.block_number + DRAW_AGE:
        return drawn
    again = DrawnStep(fresh_draw(desk, story, drawn.proof), drawn.proof, drawn.inclusion)
    await desk.store.note(story, again)
    return again


def fresh_draw(desk: SchedulerContext, story: OrderHistory, proof: bytes) -> Signed[Draw]:
    """The draw's words with the newest block: a newer block says nothing new, so it may be signed as often as asked."""
    beta, results = Hash32(vrf.output_of_sound(proof)), messages.results_hash(story.results)
    signed: Signed[Draw] = desk.signed(Draw(story.order_id, results, beta, desk.ledger.block))
    return signed


def _inclusion(
    desk: SchedulerContext, story: OrderHistory, message: Draw, proof: bytes, entry: int
) -> Signed[Inclusion]:
    leaf = log_data.promised_leaf(line_with(story, message, proof))
    signed: Signed[Inclusion] = desk.signed(Inclusion(story.order_id, leaf, entry))
    return signed
