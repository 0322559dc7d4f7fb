"""How long prompts, answers and rows are kept: as long as somebody may have to be shown them, and no longer.

Of an answer: until no court hears of it any more, since whoever judges it needs the rows of the segment before, and
this scheduler owes them; who lets them go earlier could be convicted of showing nothing. Of an order without an answer:
for the lag, finality and inclusion. While a case or a summons goes on, and for the window after it, everything stays.
"""

from __future__ import annotations

from troth.cases.keeping import is_in_court, last_block
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters
from troth.protocol.types import Hash32
from troth.scheduler.orders.store import ANSWERED, FAILED, OrderStore
from troth.scheduler.orders.story import Story

FINALITY_BLOCKS = 96
"""Two epochs of Ethereum, in which a block becomes final, and one in which a call is included."""


def is_owed_no_more(story: Story, state: State, block: int, parameters: Parameters) -> bool:
    """Whether nobody may ask for prompt, answer or rows of an order any more."""
    if block <= _last_word(story, parameters):
        return False
    return not any(is_in_court(state, story.order_id, segment, block, parameters) for segment in range(story.segments))


def maybe_over(store: OrderStore, block: int, parameters: Parameters) -> list[Hash32]:
    """Orders old enough to be asked about; by what is indexed, since there may be millions that are not."""
    answered, failed = block - last_block(0, parameters), block - parameters.lag - FINALITY_BLOCKS
    return store.kept(ANSWERED, answered) + store.kept(FAILED, failed)


def _last_word(story: Story, parameters: Parameters) -> int:
    if story.answered is not None:
        return last_block(story.order.reference_block, parameters)
    admitted = story.admitted.admission.message.block_number
    ended = admitted if story.failed is None else max(admitted, story.failed.block)
    return ended + parameters.lag + FINALITY_BLOCKS
