"""The draw: beta by VRF over the order, over exactly these results, with the newest block; and the log's promise."""

from __future__ import annotations

from troth.protocol import vrf
from troth.protocol.market import log_data, messages
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Draw, Inclusion
from troth.protocol.types import Hash32
from troth.scheduler.log.entries import LogBook
from troth.scheduler.log.lines import line_with
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.steps import DrawnStep
from troth.scheduler.tabs.database import Statement
from troth.scheduler.tabs.due import inference_fees


async def draw(context: SchedulerContext, log: LogBook, history: OrderHistory) -> DrawnStep:
    """Draw over an order's stored results; journalled before it is returned."""
    drawn, statements = first_draw(context, log, history)
    await context.store.note(history, drawn, *statements)
    return drawn


def first_draw(context: SchedulerContext, log: LogBook, history: OrderHistory) -> tuple[DrawnStep, list[Statement]]:
    """The draw over an order's results, and what changes in the books with it; to be journalled before it leaves.

    The lag of its nodes runs from its block.
    """
    proof = vrf.prove(context.vrf_secret, messages.draw_alpha(history.order_id))
    fresh = fresh_draw(context, history, proof)
    entry, statements = log.assign(history)
    drawn = DrawnStep(fresh, proof, _inclusion(context, history, fresh.message, proof, entry))
    due = fresh.message.block_number + context.ledger.parameters.lag
    return drawn, [*statements, *inference_fees(context.node_tabs, history, due)]


async def draw_again(context: SchedulerContext, history: OrderHistory) -> DrawnStep:
    """The same draw with the newest block, for a client that was away when the first one came.

    Only while the first one's time for the secret runs: else a client could keep its secrets as long as it likes.
    """
    drawn = history.drawn
    assert drawn is not None
    block = context.ledger.block
    late = block > history.drawn_first + context.ledger.parameters.lag // 2
    if history.revealed is not None or late or block <= drawn.draw.message.block_number + DRAW_AGE:
        return drawn
    again = DrawnStep(fresh_draw(context, history, drawn.proof), drawn.proof, drawn.inclusion)
    await context.store.note(history, again)
    return again


def fresh_draw(context: SchedulerContext, history: OrderHistory, proof: bytes) -> Signed[Draw]:
    """The draw's words with the newest block: a newer block says nothing new, so it may be signed as often as asked."""
    beta, results = Hash32(vrf.output_of_sound(proof)), messages.results_hash(history.results)
    signed: Signed[Draw] = context.signed(Draw(history.order_id, results, beta, context.ledger.block))
    return signed


def _inclusion(
    context: SchedulerContext, history: OrderHistory, message: Draw, proof: bytes, entry: int
) -> Signed[Inclusion]:
    leaf = log_data.promised_leaf(line_with(history, message, proof))
    signed: Signed[Inclusion] = context.signed(Inclusion(history.order_id, leaf, entry))
    return signed
