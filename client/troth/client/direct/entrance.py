"""Where orders enter in direct mode: at a node of the model, for its cache's sake the one that served the beginning.

Nothing that a node passes on is believed more than if its scheduler had said it, and what it does not pass on is asked
of the scheduler itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from troth.client.direct.nodes import NodeChoice
from troth.client.direct.prefixes import Prefixes
from troth.client.direct.ways import Ways
from troth.client.errors import OverlayFailed
from troth.client.orders.calls import MarketCalls
from troth.overlay.errors import OverlayError
from troth.protocol.types import Address, Hash32

MOST_ORDERS = 4096


class Entrance:
    """Chooses nodes, and remembers where each order entered, so that its check goes the same way."""

    def __init__(self, choice: NodeChoice, ways: Ways, prefixes: Prefixes | None = None) -> None:
        self._choice = choice
        self._ways = ways
        self._prefixes = prefixes or Prefixes()
        self._entered: OrderedDict[Hash32, Address] = OrderedDict()

    def enter(self, order: Hash32, wanted: Hash32, prompt: Sequence[int]) -> Address | None:
        """The node at which an order of a class enters; None where no node may be tried."""
        node = self._choice.one(wanted, self._prefixes.near(prompt))
        if node is not None:
            self._entered[order] = node
            while len(self._entered) > MOST_ORDERS:
                self._entered.popitem(last=False)
        return node

    def entered(self, order: Hash32) -> Address | None:
        """Where an order entered, as long as nothing was amiss there."""
        return self._entered.get(order)

    def served(self, tokens: Sequence[int], node: Address) -> None:
        """A node has this prompt with its answer in its cache."""
        self._prefixes.remember(tokens, node)

    def failed(self, order: Hash32, node: Address) -> None:
        """A node was silent, or said what is not so: the order goes on at its scheduler."""
        self.leave(order)
        self._choice.failed(node)
        self._prefixes.forget(node)

    def leave(self, order: Hash32) -> None:
        """The order goes on at its scheduler, and nobody is to blame."""
        self._entered.pop(order, None)

    @asynccontextmanager
    async def way(self, scheduler: Address, node: Address) -> AsyncIterator[MarketCalls]:
        """A scheduler's interface through a node; raises OverlayFailed where no way can be made."""
        try:
            async with self._ways.to(scheduler, node) as calls:
                yield calls
        except OverlayError as error:
            raise OverlayFailed(error.what, error.value, error.remedy, hop="node", delivered="unknown") from error
