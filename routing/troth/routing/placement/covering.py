"""The group with the fewest machines, or the least waste, that closes a pipeline: subset sums in one big integer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from troth.routing.placement.pool import MachinePool, holds

TRIED = 24
"""Sums tried for one pipeline before it is given up: more only help where few machines can be ends."""

Group = tuple[int, ...]
"""Places in `MachinePool.kinds`, in rising order."""


class Sums:
    """All sums of up to so many machines. Bit `m * stride + s` says that `m` machines have `s` layers together.

    `after[j]` holds the sums of the kinds from the last down to `j`, so a sum is taken apart from the largest kind on.
    """

    __slots__ = ("_after", "_pool", "_stride", "rows")

    def __init__(self, pool: MachinePool, counts: Sequence[int]) -> None:
        kinds = pool.kinds
        self._pool = pool
        self._stride = pool.most + kinds[0].inner + 1
        smallest = min((kind.inner for kind, count in zip(kinds, counts, strict=True) if count), default=1)
        members = min(pool.layers, -(-pool.most // smallest), sum(counts))
        ones = sum(1 << (row * self._stride) for row in range(members + 1))
        bits, after = 1, [1]
        for kind, count in zip(reversed(kinds), reversed(counts), strict=True):
            keep = ones * ((1 << (self._stride - kind.inner)) - 1)
            fresh = bits
            for _ in range(min(count, members)):
                fresh = (fresh & keep) << (self._stride + kind.inner) & ((1 << (members + 1) * self._stride) - 1)
                if fresh | bits == bits:
                    break
                bits |= fresh
            after.append(bits)
        self._after = after[::-1]
        row = (1 << self._stride) - 1
        self.rows = [bits >> (count * self._stride) & row for count in range(members + 1)]

    def closing(self, counts: Sequence[int], leader: int, allowance: int, even: bool) -> Group | None:
        """The leader and the fewest others that waste at most `allowance` layers; else those that waste least."""
        pool = self._pool
        ordered = _in_order(self.rows, pool.least - pool.kinds[leader].inner, allowance)
        for others, total in islice(ordered, TRIED):
            group = tuple(sorted((leader, *self._apart(others, total, counts, even))))
            if holds([pool.kinds[place] for place in group], pool.layers):
                return group
        return None

    def _apart(self, members: int, total: int, counts: Sequence[int], even: bool) -> Group:
        """One group of `members` machines with `total` layers. The bit must be set.

        Large machines first; or `even`: of each kind about its share of `counts`, so that none runs out early.
        """
        group: list[int] = []
        share = members / max(1, sum(counts))
        for place, kind in enumerate(self._pool.kinds):
            rest = self._after[place + 1]
            most = min(counts[place], members, total // kind.inner)
            for used in _by_distance(share * counts[place], most) if even else range(most, -1, -1):
                if rest >> ((members - used) * self._stride + total - used * kind.inner) & 1:
                    group += [place] * used
                    members, total = members - used, total - used * kind.inner
                    break
        return tuple(group)


def _by_distance(wanted: float, most: int) -> list[int]:
    return sorted(range(most + 1), key=lambda used: abs(used - wanted))


def _in_order(rows: Sequence[int], target: int, allowance: int) -> Iterator[tuple[int, int]]:
    """Pairs (machines, layers): first those within the allowance by machines, then the others by layers wasted."""
    target = max(target, 0)
    within = (1 << (allowance + 1)) - 1
    beyond: list[tuple[int, int]] = []
    for members, row in enumerate(rows[1:], start=1):
        above = row >> target
        for waste in _bits(above & within):
            yield members, target + waste
        beyond += [(waste, members) for waste in _bits(above & ~within)]
    for waste, members in sorted(beyond):
        yield members, target + waste


def _bits(word: int) -> Iterator[int]:
    while word:
        lowest = word & -word
        yield lowest.bit_length() - 1
        word ^= lowest
