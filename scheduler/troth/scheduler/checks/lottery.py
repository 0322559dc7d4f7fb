"""The client's secret: shown in time it ends the lottery; whether it hits, and who checks, follows from it alone."""

from __future__ import annotations

from troth.protocol.market import checks, lottery
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidSecret
from troth.protocol.market.messages import summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.scheduler.errors import NotYet, SecretRefused, TooLate
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.steps import RevealedStep


async def reveal(context: SchedulerContext, history: OrderHistory, secret: Hash32) -> bool:
    """Take the first secret, and say whether it hits; journalled before anything follows from it.

    Raises SecretRefused, NotYet before the draw, TooLate after half of the lag unless the check was summoned by then.
    """
    if history.drawn is None:
        raise NotYet("The answer is not drawn yet", None, "Wait for the draw's line.")
    draw = history.drawn.draw.message
    try:
        hit = lottery.is_drawn(history.order, secret, draw.beta)
    except InvalidSecret as error:
        raise SecretRefused(error.what, None, error.remedy) from error
    if history.revealed is None:
        due = lottery.secret_due(draw, context.ledger.parameters)
        if context.ledger.block > due and not _was_summoned(context.ledger.state, history):
            what = f"The secret was due by block {due}; the answer stays undrawn"
            raise TooLate(what, context.ledger.block, "Show secrets as soon as the draw has come.")
        await context.store.note(history, RevealedStep(secret, context.ledger.block))
    return hit


def drawn_verifiers(context: SchedulerContext, history: OrderHistory) -> tuple[DrawnSeats, ...]:
    """Who checks each segment now: without those that a summons proved silent."""
    assert history.drawn is not None
    assert history.revealed is not None
    silent = {segment: silent_in(context.ledger.state, history, segment) for segment in range(history.segments)}
    return checks.verifiers(
        history.order,
        history.results,
        history.revealed.secret,
        history.drawn.draw.message.beta,
        nodes=history.admitted.nodes,
        view=context.view(history.order, history.admitted.tab),
        silent={segment: nodes for segment, nodes in silent.items() if nodes},
    )


def silent_in(state: State, history: OrderHistory, segment: int) -> tuple[Address, ...]:
    """Nodes that a summons of a segment's check proved silent."""
    return state.silent_in_check(history.order_id, segment)


def _was_summoned(state: State, history: OrderHistory) -> bool:
    return any(
        summons_id(history.order_id, SummonsKind.CHECK, segment) in state.summons for segment in range(history.segments)
    )
