"""What the chain says of a class's nodes: who is registered, which slice each has, who is in which group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from troth.protocol.identifiers import group_id
from troth.protocol.state import State, bonded
from troth.protocol.types import Address, Hash32, Segment


@dataclass(frozen=True, slots=True)
class ChainSide:
    """One class at one block.

    Args:
        parties: nodes that each segment needs: candidates and verifiers, or as many as a check needs owners.
        slices: of the bonded nodes of the class: who has lost its stake can neither join a group nor be moved.
        groups: the members of each segment's group, both in this block and in the one before: an order may refer to
            either.
        kept: nodes whose slice the chain does not let change yet.
        most_groups: that a node may be in.
        largely: whether clients believe a group only that most hosts of its layers have joined.
    """

    block: int
    layers: int
    dtype: int
    parties: int
    slices: Mapping[Address, Segment]
    groups: Mapping[Segment, frozenset[Address]]
    kept: frozenset[Address] = frozenset()
    most_groups: int = 16
    largely: bool = True

    def joined(self, node: Address) -> set[Segment]:
        """The groups that a node is in."""
        return {segment for segment, members in self.groups.items() if node in members}


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
