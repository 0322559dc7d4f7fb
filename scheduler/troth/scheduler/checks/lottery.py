"""The client's secret: shown in time it ends the lottery; whether it hits, and who checks, follows from it alone."""

from __future__ import annotations

from troth.protocol.market import checks, lottery
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.errors import InvalidSecret
from troth.protocol.market.messages import summons_id
from troth.protocol.market.state import State
from troth.protocol.market.types import SummonsKind
from troth.protocol.types import Address, Hash32
from troth.scheduler.errors import NotYet, SecretRefused, TooLate
from troth.scheduler.orders.desk import SchedulerContext
from troth.scheduler.orders.steps import RevealedStep
from troth.scheduler.orders.story import OrderHistory


async def reveal(desk: SchedulerContext, story: OrderHistory, secret: Hash32) -> bool:
    """Take the first secret, and say whether it hits; journalled before anything follows from it.

    Raises SecretRefused, NotYet before the draw, TooLate after half of the lag unless the check was summoned by then.
    """
    if story.drawn is None:
        raise NotYet("The answer is not drawn yet", None, "Wait for the draw's line.")
    draw = story.drawn.draw.message
    try:
        hit = lottery.is_drawn(story.order, secret, draw.beta)
    except InvalidSecret as error:
        raise SecretRefused(error.what, None, error.remedy) from error
    if story.revealed is None:
        due = lottery.secret_due(draw, desk.ledger.parameters)
        if desk.ledger.block > due and not _was_summoned(desk.ledger.state, story):
            what = f"The secret was due by block {due}; the answer stays undrawn"
            raise TooLate(what, desk.ledger.block, "Show secrets as soon as the draw has come.")
        await desk.store.note(story, RevealedStep(secret, desk.ledger.block))
    return hit


def drawn_verifiers(desk: SchedulerContext, story: OrderHistory) -> tuple[DrawnSeats, ...]:
    """Who checks each segment now: without those that a summons proved silent."""
    assert story.drawn is not None
    assert story.revealed is not None
    silent = {segment: silent_in(desk.ledger.state, story, segment) for segment in range(story.segments)}
    return checks.verifiers(
        story.order,
        story.results,
        story.revealed.secret,
        story.drawn.draw.message.beta,
        nodes=story.admitted.nodes,
        view=desk.view(story.order, story.admitted.tab),
        silent={segment: nodes for segment, nodes in silent.items() if nodes},
    )


def silent_in(state: State, story: OrderHistory, segment: int) -> tuple[Address, ...]:
    """Nodes that a summons of a segment's check proved silent."""
    return state.silent_in_check(story.order_id, segment)


def _was_summoned(state: State, story: OrderHistory) -> bool:
    return any(
        summons_id(story.order_id, SummonsKind.CHECK, segment) in state.summons for segment in range(story.segments)
    )
