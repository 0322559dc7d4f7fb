"""What the pools ask of a chain: a class's nodes, and who may report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

from troth.protocol.identifiers import group_id
from troth.protocol.market.draws import SPARE_OWNERS
from troth.protocol.market.state import State as MarketState
from troth.protocol.market.types import PotKind
from troth.protocol.market.types import Role as MarketRole
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32, Segment
from troth.scheduler.pool.chain_side import ChainSide

MOST_GROUPS = 2
"""Groups that the market's registry lets a node be in."""


class Sides(ABC):
    """One chain, as it is now."""

    @property
    @abstractmethod
    def block(self) -> int:
        """The newest block that was followed."""

    @abstractmethod
    def side(self, class_id: Hash32) -> ChainSide | None:
        """A class's nodes; None if the class or its model is not registered."""

    @abstractmethod
    def is_node(self, sender: Address) -> bool:
        """Whether a node is registered and not leaving."""


class MarketSides(Sides):
    """A market's contracts; ``chain`` gives state and block."""

    def __init__(self, chain: Callable[[], tuple[MarketState, int]]) -> None:
        self._chain = chain

    @property
    def block(self) -> int:
        return self._chain()[1]

    def side(self, class_id: Hash32) -> ChainSide | None:
        state, block = self._chain()
        rules = state.classes.get(class_id)
        model = state.models.get(rules.model) if rules else None
        if rules is None or model is None:
            return None
        slices = {
            operator: party.hosted
            for operator, party in state.parties.items()
            if party.execution_class == class_id
            and party.hosted is not None
            and not party.exit_block
            and state.pot(PotKind.STAKE, operator) >= rules.seat
        }
        # Clients pass a group by in which a check says little, for lack of owners.
        parties = max(rules.candidates, SPARE_OWNERS) + rules.verifiers
        groups = _groups(state, class_id, block, model.layers)
        age = parameters_of(state).reference_age
        kept = frozenset(one for one in slices if state.parties[one].kept_until(age) > block + 1)
        return ChainSide(
            block, model.layers, rules.dtype, parties, slices, groups, kept, most_groups=MOST_GROUPS, largely=False
        )

    def is_node(self, sender: Address) -> bool:
        party = self._chain()[0].parties.get(sender)
        return party is not None and party.role is MarketRole.NODE and not party.exit_block


def _groups(state: MarketState, class_id: Hash32, block: int, layers: int) -> dict[Segment, frozenset[Address]]:
    """Members in this block and in the one before: an order may refer to either."""
    found: dict[Segment, frozenset[Address]] = {}
    for group, segment in _segments(class_id, layers).items():
        if group in state.sizes:
            before, now = (
                {entry.operator for entry in state.members_at(group, at) if entry.seats}
                for at in (max(0, block - 1), block)
            )
            found[segment] = frozenset(before & now)
    return found


@lru_cache(maxsize=64)
def _segments(class_id: Hash32, layers: int) -> dict[Hash32, Segment]:
    """Every segment that a model can have, by its group."""
    spans = (Segment(first, end) for first in range(layers) for end in range(first + 1, layers + 1))
    return {group_id(class_id, span): span for span in spans}
