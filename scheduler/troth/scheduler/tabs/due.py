"""When nodes' work is acknowledged, and what it is worth: the same lag to nodes as clients have to us."""

from __future__ import annotations

from collections.abc import Iterable

from troth.protocol.market import prices
from troth.protocol.market.messages import Signed
from troth.protocol.market.state import State
from troth.protocol.market.types import Result, Work
from troth.protocol.types import Address
from troth.scheduler.orders.story import Story
from troth.scheduler.tabs.database import Statement
from troth.scheduler.tabs.node_tabs import NodeTabs, Owed


def inference_fees(node_tabs: NodeTabs, story: Story, due: int) -> list[Statement]:
    """What each node's promise is worth with its result, from the block ``due`` on; sooner, if it was said before."""
    assert story.answered is not None
    return results_fees(node_tabs, story, story.answered.results, due)


def results_fees(node_tabs: NodeTabs, story: Story, results: Iterable[Signed[Result]], due: int) -> list[Statement]:
    """The same for some of the nodes."""
    statements: list[Statement] = []
    for one in results:
        segment = one.message.segment
        promised = story.admitted.promises[segment]
        fee = prices.promise_worth(promised.message, one.message)
        statements += node_tabs.set_fee(story.admitted.nodes[segment], promised.message.sequence, fee, due)
    return statements


def nothing_owed(node_tabs: NodeTabs, story: Story, segments: Iterable[int]) -> list[Statement]:
    """Nodes without a result are owed nothing, and are told so at once."""
    statements: list[Statement] = []
    for segment in segments:
        promised = story.admitted.promises[segment].message
        statements += node_tabs.set_fee(story.admitted.nodes[segment], promised.sequence, 0, 0)
    return statements


def is_withheld(state: State, node: Address, owed: Owed) -> bool:
    """Whether a leaf waits: a case that suspends its node is open, or a conviction has voided it already.

    Nothing else may keep back what is owed; a check is owed whether or not its result stands.
    """
    if owed.work is Work.CHECK:
        return False
    return any(record.live and record.state.suspends and record.state.node == node for record in state.cases.values())
