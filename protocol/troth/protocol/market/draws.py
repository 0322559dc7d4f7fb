"""Which seats are drawn: the rule of DrawRequest, over a group as it was at a past block.

For i = 0, 1, …: h = keccak256(abi.encode(seed, i)). The upper half of h picks a place of the group's compact array; the
lower half accepts its entry with the probability seats × weight / (cap × 10,000). So one entry stands for all seats of
a node, a draw is proportional to seats, and its cost does not grow with stake or history. Owners may be excluded;
who asks more than the order pays is passed over, so that nobody is skipped by a secret offer.

Members of a past block never change. A contract finds them by hints, since it must not search: for each look-up that
the latest checkpoint does not answer, the block (four bytes) from which its successor counts. ``draw`` makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from troth.protocol.hashing import keccak256
from troth.protocol.market import prices
from troth.protocol.market.errors import InvalidDrawRequest
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Ask, DrawRequest, GroupEntry, Rules
from troth.protocol.types import Address, Hash32, Segment, to_hash32

FULL_WEIGHT = 10_000
"""What a node's seats weigh without a contract of weights, basis points."""
FIRST_TRIES, TRIES_PER_SEAT = 256, 128
"""Look-ups before a draw gives up: 256 + 128 for each seat. A group of full seats needs one each; with fewer tries a
group of small stakes would fail by chance."""
SIZES_PER_WORD = 4
"""Sizes share a storage word, four in a row, so that every fourth change costs a new slot."""
SPARE_OWNERS = 6
"""Owners that a group needs beside k before its checks say anything."""
NO_BOUND = Ask()
"""Of draws that are not of inferencers, which look at no asks; checking is priced by class."""
_HALF = 128


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """A group and its history, oldest first: what the registry's events fold to.

    ``sizes`` are (block, size); ``places`` hold each place's entries, ``asks`` each member's (block, ask); of one
    block only the last change counts. ``owners`` never change. ``weights`` are those at the block of the draw, full
    where missing.
    """

    sizes: tuple[tuple[int, int], ...]
    places: tuple[tuple[GroupEntry, ...], ...]
    owners: Mapping[Address, Address]
    asks: Mapping[Address, tuple[tuple[int, Ask], ...]] = field(default_factory=dict)
    weights: Mapping[Address, int] = field(default_factory=dict)

    def size_at(self, block: int) -> int:
        """Members at the end of a past block."""
        return next((size for start, size in reversed(self.sizes) if start <= block), 0)

    def entry_at(self, place: int, block: int) -> GroupEntry:
        """The entry at a place at the end of a past block."""
        return next((entry for entry in reversed(self.places[place]) if entry.from_block <= block), GroupEntry())

    def ask_at(self, operator: Address, block: int) -> Ask:
        """What a member asked at the end of a past block."""
        return next((ask for start, ask in reversed(self.asks.get(operator, ())) if start <= block), Ask())

    def members_at(self, block: int) -> tuple[GroupEntry, ...]:
        """All entries at the end of a past block, in the order of their places."""
        return tuple(self.entry_at(place, block) for place in range(self.size_at(block)))

    def owners_at(self, block: int) -> frozenset[Address]:
        """Who owns the members of a past block; a class with fewer than k + 6 of them offers no checks."""
        return frozenset(self.owners[entry.operator] for entry in self.members_at(block))


@dataclass(frozen=True, slots=True)
class DrawnSeats:
    """The seats drawn, as operators in the order they were drawn, and the hints with which a contract repeats it."""

    operators: tuple[Address, ...]
    hints: bytes

    @property
    def seats(self) -> dict[Address, int]:
        """Seats of each operator, in the order of their first seat."""
        return dict(Counter(self.operators))


def seasoned_seats(entry: GroupEntry, block: int, seasoning: int) -> int:
    """Seats that may check and judge at a block: all once the newest are old enough, before that the settled ones."""
    return entry.seats if block >= entry.since + seasoning else min(entry.settled, entry.seats)


def seats_by_owner(group: GroupHistory, block: int, seasoning: int) -> Counter[Address]:
    """Seats that may check at a block, of each owner."""
    seats: Counter[Address] = Counter()
    for entry in group.members_at(block):
        seats[group.owners[entry.operator]] += seasoned_seats(entry, block, seasoning)
    return seats


def draw(request: DrawRequest, group: GroupHistory, *, seat_cap: int, seasoning: int) -> DrawnSeats:
    """The seats that a request draws; raises InvalidDrawRequest where they are not found in 256 + 128 × count tries."""
    block = request.block_number
    size = group.size_at(block)
    if not size:
        raise InvalidDrawRequest("The group was empty at this block", block, "Take another layer split.")
    hints = [_hint([start for start, _ in group.sizes][::SIZES_PER_WORD], block)]
    drawn: list[Address] = []
    tries = FIRST_TRIES + TRIES_PER_SEAT * request.count
    for number in range(tries):
        if len(drawn) == request.count:
            break
        place, chance = _try(request.seed, number, size)
        entry = group.entry_at(place, block)
        hints.append(_hint([one.from_block for one in group.places[place]], block))
        seats = seasoned_seats(entry, block, seasoning) if request.seasoned else entry.seats
        weight = min(group.weights.get(entry.operator, FULL_WEIGHT), FULL_WEIGHT)
        if chance % (seat_cap * FULL_WEIGHT) >= seats * weight or (request.distinct and entry.operator in drawn):
            continue
        if group.owners[entry.operator] in request.excluded:
            continue
        if request.distinct:
            hints.append(_hint([start for start, _ in group.asks.get(entry.operator, ())], block))
            if not prices.within(group.ask_at(entry.operator, block), request.bound):
                continue
        drawn.append(entry.operator)
    if len(drawn) < request.count:
        what = f"Only {len(drawn)} of {request.count} seats were found in {tries} tries"
        raise InvalidDrawRequest(what, size, "Wait for more stake in this group, or pay what its nodes ask.")
    return DrawnSeats(tuple(drawn), b"".join(hints))


def _try(seed: Hash32, number: int, size: int) -> tuple[int, int]:
    """A place, and the number that accepts or passes over its entry."""
    drawn = int.from_bytes(keccak256(to_hash32(seed) + number.to_bytes(32)))
    return (drawn >> _HALF) % size, drawn & ((1 << _HALF) - 1)


def _hint(starts: Sequence[int], block: int) -> bytes:
    """Nothing if the last word answers, else the block with which the successor of the right word starts."""
    later = next((start for start in starts if start > block), None)
    return b"" if later is None else later.to_bytes(4)


# ----------------------------------------------------------------------------------------------------- the three draws


def inferencers_request(order: Order, rules: Rules, span: Segment, seed: Hash32) -> DrawRequest:
    """Who may infer a segment: c different nodes, old or new, that ask no more than the order pays for its layers."""
    bound = prices.bound(order, span.end - span.first, rules.layers)
    return _request(order, span, seed, rules.candidates, distinct=True, bound=bound)


class PlacedWork(Protocol):
    """What a draw over seats needs to know of an order; a summons of it says it, too."""

    @property
    def execution_class(self) -> Hash32:
        """Its class."""

    @property
    def reference_block(self) -> int:
        """Whose members are drawn."""


def verifiers_request(
    order: PlacedWork, rules: Rules, span: Segment, seed: Hash32, excluded: Sequence[Address]
) -> DrawRequest:
    """Who checks a segment: k seasoned seats without the owners of the order's inferencers."""
    return _request(order, span, seed, rules.verifiers, seasoned=True, excluded=tuple(excluded))


def reviewers_request(
    order: Order, rules: Rules, span: Segment, seed: Hash32, excluded: Sequence[Address]
) -> DrawRequest:
    """Who judges a case: m' seasoned seats of the order's reference block, without all who have a part in it.

    Members of the order's block, not of the case's: sixty seats that joined after a verdict once turned it.
    """
    return _request(order, span, seed, rules.reviewers, seasoned=True, excluded=tuple(excluded))


def _request(
    order: PlacedWork,
    span: Segment,
    seed: Hash32,
    count: int,
    *,
    seasoned: bool = False,
    distinct: bool = False,
    excluded: tuple[Address, ...] = (),
    bound: Ask = NO_BOUND,
) -> DrawRequest:
    return DrawRequest(
        execution_class=order.execution_class,
        first=span.first,
        end=span.end,
        block_number=order.reference_block,
        seed=seed,
        count=count,
        seasoned=seasoned,
        distinct=distinct,
        excluded=excluded,
        bound=bound,
    )


def offers_checks(group: GroupHistory, rules: Rules, block: int) -> bool:
    """Whether a group has k + 6 owners; with fewer, all k verifiers may be friends, and a class must say so."""
    return len(group.owners_at(block)) >= rules.verifiers + SPARE_OWNERS
