"""How long what a case may need is kept: until no court hears of an order any more, whoever drew and summoned when.

A case over an answer is opened within the court's window after its draw. A scheduler may sign a draw anew, at the
latest for a claim that it answers at its end; the court hears none later than that after the order's block. While a
case or a summons about the order goes on, and for the window after it, everything stays.
"""

from __future__ import annotations

from troth.protocol.market.court import last_case_block, last_opening_block
from troth.protocol.market.messages import DOUBTS, case_id, summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.state import State
from troth.protocol.market.types import Parameters
from troth.protocol.types import Hash32

FINALITY = 64
"""Blocks after which no reorganisation takes a case away: two epochs of Ethereum."""


def last_block(reference_block: int, parameters: Parameters) -> int:
    """The last block in which a case over an order can be opened, and is final."""
    return last_case_block(reference_block, parameters) + FINALITY


def oldest_kept(block: int, parameters: Parameters) -> int:
    """Orders with an older reference block are over, unless a case goes on."""
    return block - last_block(0, parameters)


def is_in_court(state: State, order: Hash32, segment: int, block: int, parameters: Parameters) -> bool:
    """Whether a case or a summons about a segment goes on, or ended so lately that another may be opened."""
    window = last_opening_block(0, parameters) + FINALITY
    for place in (segment, DOUBTS + segment):
        case = state.cases.get(case_id(order, place))
        if case is not None and (case.live or case.events[-1].meta.block + window >= block):
            return True
    wanted = ((SummonsKind.RESULTS, 0), (SummonsKind.CHECK, segment))
    summoned = (state.summons.get(summons_id(order, kind, place)) for kind, place in wanted)
    return any(one is not None and one.events[-1].meta.block + window >= block for one in summoned)
