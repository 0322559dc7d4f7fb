"""When nodes' work is acknowledged, and what it is worth: the same lag to nodes as clients have to us."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from troth.protocol.market import prices
from troth.protocol.market.life import may_withhold
from troth.protocol.market.messages import Signed, summons_id
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import Result, Work
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.types import Address, Hash32
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.tabs.database import Statement
from troth.scheduler.tabs.node_tabs import NodeTabs, Owed

Stories = Callable[[Hash32], OrderHistory | None]
"""An order by its id."""


def inference_fees(node_tabs: NodeTabs, history: OrderHistory, due: int) -> list[Statement]:
    """What each node's promise is worth with its result, from the block ``due`` on; sooner, if it was said before."""
    assert history.answered is not None
    return results_fees(node_tabs, history, history.answered.results, due)


def results_fees(
    node_tabs: NodeTabs, history: OrderHistory, results: Iterable[Signed[Result]], due: int
) -> list[Statement]:
    """The same for some of the nodes."""
    statements: list[Statement] = []
    for one in results:
        segment = one.message.segment
        promised = history.admitted.promises[segment]
        fee = prices.promise_worth(promised.message, one.message)
        statements += node_tabs.set_fee(history.admitted.nodes[segment], promised.message.sequence, fee, due)
    return statements


def nothing_owed(node_tabs: NodeTabs, history: OrderHistory, segments: Iterable[int]) -> list[Statement]:
    """Nodes without a result are owed nothing, and are told so at once."""
    statements: list[Statement] = []
    for segment in segments:
        promised = history.admitted.promises[segment].message
        statements += node_tabs.set_fee(history.admitted.nodes[segment], promised.sequence, 0, 0)
    return statements


def left_undecided(node_tabs: NodeTabs, history: OrderHistory) -> list[int]:
    """Segments of a failed order whose nodes were not told yet what they are owed: a crash came between."""
    found = []
    for segment, (node, promised) in enumerate(zip(history.admitted.nodes, history.admitted.promises, strict=True)):
        owed = node_tabs.held(node).owed.get(promised.message.sequence)
        if owed is not None and owed.due is None:
            found.append(segment)
    return found


def decision(state: State, histories: Stories) -> Callable[[Address, Owed], int | None]:
    """What of a due leaf is owed now: nothing where it is void, and None while a case permits to withhold it.

    Nothing else may keep back what is owed. A check is owed whether or not the result that it judged stands; only its
    verifier's own conviction voids it.
    """

    def decide(node: Address, owed: Owed) -> int | None:
        history = histories(owed.order)
        reference = 0 if history is None else history.order.reference_block
        if state.is_void(node, reference):
            return 0
        if owed.work is Work.INFERENCE:
            if state.is_voided(owed.order, owed.segment):
                return 0
            if any(_withholds(record, node, owed) for record in state.cases.values()):
                return None
        return owed.fee or 0

    return decide


def _withholds(record: CaseRecord, node: Address, owed: Owed) -> bool:
    return record.live and may_withhold(record.state, owed.order, node, owed.segment)


def rejections_decided(node_tabs: NodeTabs, state: State, histories: Stories, block: int, lag: int) -> list[Statement]:
    """Checks that did not end with a yes: owed once the result fell, and nothing if it stands when no case is left.

    Nothing is owed to who never spoke. Its number must not stay open for ever: only so many may, on one tab.
    """
    statements: list[Statement] = []
    for held in node_tabs:
        for number, owed in held.owed.items():
            history = histories(owed.order) if owed.work is Work.CHECK and owed.due is None else None
            if history is None:
                continue
            if (owed.segment, held.node) in history.verdicts and _fell(state, history, owed.segment):
                fee = _promised_price(history, owed.segment, held.node)
                statements += node_tabs.set_fee(held.node, number, fee, block)
            elif block > max(history.judged_at, history.drawn_first) + 2 * lag and not _in_court(state, history):
                statements += node_tabs.set_fee(held.node, number, 0, block)
    return statements


def _fell(state: State, history: OrderHistory, segment: int) -> bool:
    node, reference = history.admitted.nodes[segment], history.order.reference_block
    return state.is_voided(history.order_id, segment) or state.is_void(node, reference)


def _in_court(state: State, history: OrderHistory) -> bool:
    if any(record.live and record.state.order == history.order_id for record in state.cases.values()):
        return True
    named = (summons_id(history.order_id, SummonsKind.CHECK, segment) for segment in range(history.segments))
    return any(one in state.summons and state.summons[one].answered is None for one in named)


def _promised_price(history: OrderHistory, segment: int, verifier: Address) -> int:
    for check in history.checks.get(segment, ()):
        for operator, promised in zip(check.operators, check.promises, strict=True):
            if operator == verifier:
                return promised.message.price
    return 0
