"""What the pools ask of a chain that settles task by task."""

from __future__ import annotations

from collections.abc import Callable

from troth.protocol.contract_types import Role
from troth.protocol.identifiers import group_id
from troth.protocol.state import State, bonded
from troth.protocol.types import Address, Hash32, Segment
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.sides import Sides


class TaskSides(Sides):
    """The contract of per-task settlement; ``chain`` gives state and block."""

    def __init__(self, chain: Callable[[], tuple[State, int]]) -> None:
        self._chain = chain

    @property
    def block(self) -> int:
        return self._chain()[1]

    def side(self, class_id: Hash32) -> ChainSide | None:
        state, block = self._chain()
        return chain_side(state, class_id, block)

    def is_node(self, sender: Address) -> bool:
        account = self._chain()[0].accounts.get(sender)
        return account is not None and account.role is Role.NODE and account.exit_block == 0


def chain_side(state: State, class_id: Hash32, block: int) -> ChainSide | None:
    """None if the class or its model is not registered."""
    rules = state.classes.get(class_id)
    model = state.models.get(rules.model) if rules else None
    if rules is None or model is None:
        return None
    slices = {
        operator: node.slice
        for operator, node in state.nodes.items()
        if node.execution_class == class_id and bonded(state, operator, rules)
    }
    groups: dict[Segment, frozenset[Address]] = {}
    for identifier, group in state.groups.items():
        if group.execution_class == class_id and identifier == group_id(class_id, group.segment):
            before, now = (set(group.members_at(at)) for at in (max(0, block - 1), block))
            groups[group.segment] = frozenset(member for member in before & now if member is not None)
    kept = frozenset(operator for operator in slices if state.nodes[operator].kept_until > block + 1)
    return ChainSide(block, model.layers, rules.dtype, rules.parties, slices, groups, kept)
