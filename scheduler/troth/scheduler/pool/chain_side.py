"""What the chain says of a class's nodes: who is registered, which slice each has, who is in which group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from troth.protocol.types import Address, Segment


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
