"""The pools of a market's classes as a chooser of chains: measured times decide among the nodes that were drawn."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.market.types import Parameters
from troth.protocol.types import Address
from troth.scheduler.orders.context import RoutedOrder
from troth.scheduler.pool.coordinator import Coordinator, RouteRequest
from troth.scheduler.pool.pace import PlacementPace

BLOCK_SECONDS = 12.0


def placing_pace(parameters: Parameters) -> PlacementPace:
    """How often nodes are moved: for mere improvement not before the seats of the last move have seasoned.

    A seat in a new group checks and judges nothing until then, so that a pool which is always improved checks nothing.
    """
    plain = PlacementPace()
    return PlacementPace(plain.settle_seconds, max(plain.calm_seconds, parameters.seasoning * BLOCK_SECONDS))


class PoolRoutes:
    """``orders.context.Routes`` over a Coordinator."""

    def __init__(self, pools: Coordinator) -> None:
        self._pools = pools

    def choose(self, wanted: RoutedOrder, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """The fastest chain with room for the order; None where measured times say nothing."""
        asked = RouteRequest(wanted.order_id, wanted.execution_class, wanted.spans, wanted.positions)
        return self._pools.choose_for(asked, allowed)

    def note_answer(self, wanted: RoutedOrder, node: Address, layers: int, seconds: float) -> None:
        """One position through so many layers took so long."""
        self._pools.note_answer_for(wanted.execution_class, node, layers, seconds)

    def release(self, wanted: RoutedOrder) -> None:
        """The order is over."""
        self._pools.release_for(wanted.execution_class, wanted.order_id)
