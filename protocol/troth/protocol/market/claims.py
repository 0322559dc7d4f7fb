"""What is authorised but not acknowledged, claimed at once: a Merkle-sum tree, objections and their answers.

Leaf i of the tree is number ``first`` + i, so that a number has one place; numbers that are not claimed are zero leaves
with sum 0, as is the padding up to a power of two. Every node binds the sums of its two sides and the root binds total
and range (library ``SumTree``)::

    leaf = keccak256(0x00 ‖ uint64 number ‖ uint96 amount)          zero leaf = 32 zero bytes, sum 0
    node = keccak256(0x01 ‖ left ‖ uint96 left sum ‖ right ‖ uint96 right sum)
    root = keccak256(0x02 ‖ tree root ‖ uint96 total ‖ uint64 first ‖ uint64 last)

Nobody builds the tree on chain. The payer, who knows every number's worth, objects to the one that is wrong; the
claimant shows its path, its order and its results, or loses the claim. A tree can hide a sum wherever nobody may
look, so every place of the tree can be objected to: also a number that is left out, and padding, for which the answer
is the path of a zero leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from troth.protocol.hashing import keccak256
from troth.protocol.market.errors import InvalidClaim
from troth.protocol.market.tabs import WINDOW, is_acknowledged
from troth.protocol.market.types import Claim, Voucher
from troth.protocol.types import Hash32, to_hash32

LEAF, NODE, ROOT = b"\x00", b"\x01", b"\x02"
DEPTH_LIMIT = 32
SUM_LIMIT = 1 << 96
ZERO_LEAF = (bytes(32), 0)

_Summed = tuple[bytes, int]
"""A node's hash and the sum below it."""


@dataclass(frozen=True, slots=True)
class LeafPath:
    """Siblings of a leaf and their sums, from the bottom."""

    siblings: tuple[Hash32, ...]
    sums: tuple[int, ...]


def depth_of(first: int, last: int) -> int:
    """Depth of the tree over the numbers first to last: ceil(log2(count)); raises InvalidClaim beyond 32."""
    if not 0 < first <= last < 1 << 64 or last - first >= 1 << DEPTH_LIMIT:
        raise InvalidClaim("A claim covers 1 to 2^32 numbers, from 1 on", (first, last), "Claim a shorter range.")
    return (last - first).bit_length()


def leaf(number: int, amount: int) -> _Summed:
    """A claimed number's leaf; raises InvalidClaim unless 0 < amount < 2^96."""
    if not 0 < amount < SUM_LIMIT:
        raise InvalidClaim("A claimed leaf is worth 1 to 2^96 - 1", amount, "Leave numbers out that are worth nothing.")
    return keccak256(LEAF + number.to_bytes(8) + amount.to_bytes(12)), amount


def node(left: _Summed, right: _Summed) -> _Summed:
    """The node above two; raises InvalidClaim where the sum leaves 96 bits."""
    total = left[1] + right[1]
    if total >= SUM_LIMIT:
        raise InvalidClaim("The sum leaves 96 bits", total, "No tab holds so much.")
    return keccak256(NODE + left[0] + left[1].to_bytes(12) + right[0] + right[1].to_bytes(12)), total


def root_of(tree_root: bytes, total: int, first: int, last: int) -> Hash32:
    """The root that a claim names."""
    return Hash32(keccak256(ROOT + tree_root + total.to_bytes(12) + first.to_bytes(8) + last.to_bytes(8)))


@dataclass(frozen=True, slots=True)
class SumTree:
    """The tree over the numbers ``first`` to ``last``; ``levels`` leave out what covers zero leaves only."""

    first: int
    last: int
    levels: tuple[Mapping[int, _Summed], ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Sum of all leaves."""
        return self._at(len(self.levels) - 1, 0)[1]

    @property
    def root(self) -> Hash32:
        """What the claim names."""
        tree_root, total = self._at(len(self.levels) - 1, 0)
        return root_of(tree_root, total, self.first, self.last)

    def path(self, number: int) -> LeafPath:
        """The path of any place of the tree, zero leaves included; raises InvalidClaim outside of it."""
        place = place_of(self.first, self.last, number)
        steps = [self._at(height, place >> height ^ 1) for height in range(len(self.levels) - 1)]
        return LeafPath(tuple(Hash32(digest) for digest, _ in steps), tuple(total for _, total in steps))

    def _at(self, height: int, index: int) -> _Summed:
        return self.levels[height].get(index) or _zero(height)


def build(first: int, last: int, amounts: Mapping[int, int]) -> SumTree:
    """The tree with these numbers' amounts and zero leaves elsewhere; raises InvalidClaim for a number out of range."""
    depth = depth_of(first, last)
    if any(not first <= number <= last for number in amounts):
        raise InvalidClaim("A number is outside of the claimed range", (first, last), "Widen the range.")
    level = {number - first: leaf(number, amount) for number, amount in amounts.items()}
    levels = [level]
    for height in range(depth):
        parents = {index >> 1 for index in level}
        zero = _zero(height)
        level = {index: node(level.get(2 * index, zero), level.get(2 * index + 1, zero)) for index in parents}
        levels.append(level)
    return SumTree(first, last, tuple(levels))


def place_of(first: int, last: int, number: int) -> int:
    """A number's place in the tree; raises InvalidClaim for one that has none."""
    place = number - first
    if not 0 <= place < 1 << depth_of(first, last):
        raise InvalidClaim("The tree has no place for this number", number, f"It starts at {first}.")
    return place


def verify_path(claim: Claim, number: int, amount: int, path: LeafPath) -> None:
    """Check that ``number`` is worth ``amount`` (0: a zero leaf) in the claim; else raise InvalidClaim."""
    place = place_of(claim.first, claim.last, number)
    depth = depth_of(claim.first, claim.last)
    if len(path.siblings) != depth or len(path.sums) != depth:
        raise InvalidClaim(f"A path of this claim has {depth} steps", len(path.siblings), "Send the whole path.")
    current = ZERO_LEAF if amount == 0 else leaf(number, amount)
    for height, (sibling, total) in enumerate(zip(path.siblings, path.sums, strict=True)):
        side = (to_hash32(sibling), total)
        current = node(side, current) if place >> height & 1 else node(current, side)
    if current[1] != claim.total or root_of(current[0], current[1], claim.first, claim.last) != claim.root:
        raise InvalidClaim("The path leads to another root", current[0], "Show the leaf that was claimed.")


def is_claimed(claim: Claim, number: int) -> bool:
    """Whether the claim says that it wants money for this number."""
    if not claim.first <= number <= claim.last:
        return False
    return number - claim.first >= WINDOW or not claim.exceptions >> (number - claim.first) & 1


def together(amounts: Mapping[int, int], voucher: Voucher) -> dict[int, int]:
    """The oldest of these numbers that one claim can hold under a voucher: as many as are authorised.

    Each claim shows all that is open, those of earlier claims too: owed is the largest sum that was ever shown. So what
    a claim leaves out is lost where the payer acknowledges nothing more.
    """
    chosen: dict[int, int] = {}
    room = voucher.authorised - voucher.spent
    for number in sorted(amounts):
        far = number - min(chosen, default=number) >> DEPTH_LIMIT
        if number > voucher.sequence or amounts[number] > room or far:
            break
        chosen[number], room = amounts[number], room - amounts[number]
    return chosen


def claim_of(voucher: Voucher, amounts: Mapping[int, int]) -> tuple[Claim, SumTree]:
    """The claim of these numbers under a voucher, and its tree; raises InvalidClaim where it cannot be filed.

    Numbers inside the range that are worth nothing are exceptions, as far as the first 256 are. Of others the place in
    the tree is empty, which is shown where the payer objects.
    """
    if not amounts:
        raise InvalidClaim("Nothing is claimed", 0, "Claim what was authorised and not acknowledged.")
    first, last = min(amounts), max(amounts)
    tree = build(first, last, amounts)
    absent = (number for number in range(first, min(last, first + WINDOW - 1) + 1) if number not in amounts)
    claim = Claim(first, last, sum(1 << number - first for number in absent), tree.total, tree.root)
    owed(voucher, claim)
    return claim, tree


def owed(voucher: Voucher, claim: Claim) -> int:
    """What a claim shows, cumulative: the voucher's ``spent`` and all leaves.

    Raises InvalidClaim where a claimed number is acknowledged (it is paid by ``spent``) or was never authorised.
    """
    depth_of(claim.first, claim.last)
    if claim.last > voucher.sequence:
        raise InvalidClaim(f"The voucher ends with number {voucher.sequence}", claim.last, "Show a newer voucher.")
    if voucher.acknowledged_through - claim.first >= WINDOW:
        what = f"Numbers {WINDOW} or more below {voucher.acknowledged_through} are acknowledged"
        raise InvalidClaim(what, claim.first, "Claim from a later number on.")
    # Numbers above `acknowledged_through` are open, so only those up to it are looked at: 256 at most.
    for number in range(claim.first, min(claim.last, voucher.acknowledged_through) + 1):
        if is_claimed(claim, number) and is_acknowledged(voucher, number):
            raise InvalidClaim("A claimed number is acknowledged already", number, "Except it: the voucher pays it.")
    total = voucher.spent + claim.total
    if total > voucher.authorised:
        raise InvalidClaim(f"The voucher authorises {voucher.authorised}, less than is claimed", total, "Claim less.")
    return total


def wrong_numbers(
    claim: Claim, shown: Sequence[tuple[int, int, LeafPath]], worth: Mapping[int, int]
) -> tuple[int, ...]:
    """Numbers to object to, of a tree that the claimant serves: whose leaf is worth more than the payer knows.

    ``shown`` is (number, amount, path) per place. Raises InvalidClaim where a path is wrong; a place that is not
    shown must be objected to, too, which the caller sees from what it asked for.
    """
    for number, amount, path in shown:
        verify_path(claim, number, amount, path)
    excess = (number for number, amount, _ in shown if amount > (worth.get(number, 0) * is_claimed(claim, number)))
    return tuple(excess)


@lru_cache(maxsize=DEPTH_LIMIT + 1)
def _zero(height: int) -> _Summed:
    """Root of a sub-tree of ``height`` levels over zero leaves only."""
    current = ZERO_LEAF
    for _ in range(height):
        current = node(current, current)
    return current
