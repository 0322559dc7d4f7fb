"""Which order a node is given, if any: the decision turned into moves that do not break what is being served."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from troth.protocol.types import Address, Segment
from troth.routing.placement.plan import Slice
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.offering import Ends, joined_segments, segments_of


@dataclass(frozen=True, slots=True)
class HostingOrder:
    """Host `[first, end)` and be in the groups of `segments`."""

    first: int
    end: int
    segments: tuple[Segment, ...]


def wanted_hosting(
    node: Address,
    planned: Slice,
    chain: ChainSide,
    target: Ends,
    offered: Ends,
    *,
    share: tuple[Segment, ...] = (),
) -> HostingOrder | None:
    """What a node should change to; None if it hosts that slice already and is in the groups that the plan needs.

    It stays in the groups of the segments that are offered now, as far as its slice holds them: orders for those still
    come until the new ones are full. `share`: its groups of the target, where it may not be in all that it holds.
    """
    present, most = chain.slices.get(node), chain.most_groups
    needed = share or joined_segments(planned.first, planned.end, (target,), most)
    if present == Segment(planned.first, planned.end) and chain.joined(node).issuperset(needed):
        return None
    all_inside = joined_segments(planned.first, planned.end, (target, offered))
    segments = tuple(dict.fromkeys((*share, *all_inside)))[:most]
    return HostingOrder(planned.first, planned.end, segments)


def may_move(
    node: Address,
    hosting: HostingOrder,
    chain: ChainSide,
    offered: Ends,
    *,
    live: Collection[str],
    moving: Collection[str],
) -> bool:
    """Whether every segment that is offered keeps its parties while this node and those that move already are away.

    Where some segment lacks parties anyway, nothing is served that could be broken.
    """
    if not offered:
        return True
    for segment in segments_of(offered):
        members = {member for member in chain.groups.get(segment, frozenset()) if member in live}
        if len(members) < chain.parties:
            return True
        stays = segment in hosting.segments
        if node in members and not stays and len(members.difference(moving, {node})) < chain.parties:
            return False
    return True
