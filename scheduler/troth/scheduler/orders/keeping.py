"""How long prompts, answers and rows are kept: as long as somebody may have to be shown them, and no longer.

Where an answer was not drawn, or its check is over: for the lag, finality and inclusion. Where there is a case or a
summons: until it has ended, and for finality after that, since a reorganisation may take the end back.
"""

from __future__ import annotations

from troth.protocol.market import lottery
from troth.protocol.market.state import State
from troth.scheduler.orders.story import Story

FINALITY_BLOCKS = 96
"""Two epochs of Ethereum, in which a block becomes final, and one in which a call is included."""


def is_owed_no_more(story: Story, state: State, block: int, lag: int) -> bool:
    """Whether nobody may ask for prompt, answer or rows of an order any more."""
    if _is_in_court(story, state):
        return False
    return block > _last_word(story) + lag + FINALITY_BLOCKS


def _last_word(story: Story) -> int:
    """The block from which the lag runs, the last time: of the draw, of the verdicts, of the failure."""
    if story.drawn is None:
        admitted = story.admitted.admission.message.block_number
        return admitted if story.failed is None else max(admitted, story.failed.block)
    draw = story.drawn.draw.message
    if story.revealed is None or not lottery.hits(story.revealed.secret, draw.beta, story.order.check_rate):
        return draw.block_number
    return max(draw.block_number, story.judged_at, story.revealed.block)


def _is_in_court(story: Story, state: State) -> bool:
    if any(record.state.order == story.order_id and record.live for record in state.cases.values()):
        return True
    return any(record.state.order == story.order_id and record.answered is None for record in state.summons.values())
