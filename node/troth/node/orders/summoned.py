"""Summons that a scheduler passed on to this node are answered on chain: who stays silent is fined.

What is shown is the signed result or verdict, as canonical JSON, for the scheduler to use; nothing, where this node was
given nothing to work with. Its gas was put up by who passed the summons on.
"""

from __future__ import annotations

from troth.node.orders.words import RESULT, VERDICT, Words
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.state import State
from troth.protocol.market.types import Contracts, SummonsKind, SummonsState
from troth.protocol.types import Address, Hash32


def passed_to(state: State, me: Address, block: int) -> tuple[tuple[Hash32, SummonsState], ...]:
    """Open summons that wait for this node, those with the nearest deadline first."""
    open_ = ((summons_id, one) for summons_id, one in state.summons.items() if one.answered is None)
    mine = [(summons_id, one.state) for summons_id, one in open_ if one.state.passed_to == me]
    return tuple(sorted((one for one in mine if block < one[1].deadline), key=lambda one: one[1].deadline))


def response(summons_id: Hash32, summons: SummonsState, words: Words, contracts: Contracts) -> PartCall:
    """The call that says that this node is there, with what it signed. On the records' thread.

    A summons for results names no segment: a node infers one segment of an order, and shows that one's.
    """
    if summons.kind is SummonsKind.RESULTS:
        word = words.any(summons.order, RESULT)
    else:
        word = words.find(summons.order, summons.segment, VERDICT)
    return build(contracts, Part.SUMMONS, "respond", summons_id, summons, word or b"")
