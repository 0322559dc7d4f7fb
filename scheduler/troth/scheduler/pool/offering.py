"""Into which segments orders split the layers: what the plan says, and what the chain's groups can give now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from troth.protocol.types import Segment
from troth.routing.placement.plan import Slice
from troth.routing.placement.replicas import hosts
from troth.routing.placement.segments import coverage, cut

Ends = tuple[int, ...]
MOST_SEGMENTS = 16
"""Groups that a node may join, and so segments that one slice may have to cover."""


def planned_ends(slices: Sequence[Slice], layers: int, parties: int) -> Ends | None:
    """The fewest segments that each have `parties` hosts, or as many as every layer has; None if one has no host.

    Fewest, since the fee and the hops grow with them.
    """
    count = hosts(slices, layers)
    needed = min(parties, min(count, default=0))
    if needed < 1:
        return None
    whole = [Slice("", 0, layers)]
    return tuple(segment.end for segment in cut(whole, coverage(slices, layers), needed - 1))


def segments_of(ends: Ends) -> tuple[Segment, ...]:
    """The segments that end there."""
    return tuple(Segment(first, end) for first, end in pairwise((0, *ends)))


def joined_segments(first: int, end: int, wanted: Iterable[Ends], most: int = MOST_SEGMENTS) -> tuple[Segment, ...]:
    """The groups that a host of `[first, end)` should be in: all segments inside of it, those of the first ends first.

    One with none inside joins that of its slice: the chain wants one, and a later plan may use it.
    """
    inside = dict.fromkeys(
        segment for ends in wanted for segment in segments_of(ends) if first <= segment.first and segment.end <= end
    )
    return tuple(inside)[:most] or (Segment(first, end),)


def shared_out(
    slices: Sequence[Slice],
    ends: Ends,
    parties: int,
    most: int,
    joined: Callable[[str], Collection[Segment]],
) -> dict[str, tuple[Segment, ...]]:
    """The groups that each host should be in, where none may be in more than `most`.

    Who has the least choice chooses first. A group that lacks parties goes before one that has them, one that a node is
    `joined` to before one that it would have to join, then the one with the fewest.
    """
    inside = {held.name: joined_segments(held.first, held.end, (ends,)) for held in slices}
    members: Counter[Segment] = Counter()
    shares: dict[str, tuple[Segment, ...]] = {}
    for name in sorted(inside, key=lambda one: (len(inside[one]), one)):
        already, chosen = joined(name), set[Segment]()
        for _ in range(min(most, len(inside[name]))):
            left = (segment for segment in inside[name] if segment not in chosen)
            best = min(left, key=lambda one: (members[one] >= parties, one not in already, members[one], one.first))
            chosen.add(best)
            members[best] += 1
        shares[name] = tuple(segment for segment in inside[name] if segment in chosen)
    return shares


def offered_ends(ready: Mapping[Segment, int], layers: int, parties: int, preferred: Iterable[Ends]) -> Ends | None:
    """Ends of which every segment has `parties` members `ready`: the first such of `preferred`, else the fewest.

    None if the groups that are full do not reach from the first layer to the last.
    """
    full = {segment for segment, members in ready.items() if members >= parties}
    for ends in preferred:
        if ends and ends[-1] == layers and full.issuperset(segments_of(ends)):
            return ends
    return _fewest(full, layers)


def _fewest(full: Iterable[Segment], layers: int) -> Ends | None:
    best: dict[int, Ends] = {0: ()}
    by_first = sorted(full, key=lambda segment: (segment.first, segment.end))
    for segment in by_first:
        before = best.get(segment.first)
        if before is None or segment.end > layers:
            continue
        reached = (*before, segment.end)
        known = best.get(segment.end)
        if known is None or (len(reached), reached) < (len(known), known):
            best[segment.end] = reached
    return best.get(layers)
