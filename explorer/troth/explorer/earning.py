"""What a scheduler earned in one lag, by its own log: what stands beside its stake.

A false answer is found within a lag, before it is paid. So a scheduler that could serve only false answers from now on
would have at most what one lag brings, and its stake should be more than that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from troth.protocol.market.state import LoggedEntry

NEWEST = 100
"""Entries that count: what was earned long ago says little of what is at stake now."""


def most_in_lag(entries: Sequence[LoggedEntry], since: int, lag: int) -> int:
    """The most that the newest entries say was earned in any ``lag`` blocks, rounded up.

    An entry says neither when each order came nor what it brought: its fees are spread evenly over the blocks from the
    entry before, or from ``since``, the scheduler's registration, to its own.
    """
    if not entries:
        return 0
    before, newest = entries[:-NEWEST], entries[-NEWEST:]
    begin = before[-1].meta.block if before else since
    # What is posted in the block in which counting begins covers that block.
    blocks, sums = [min(begin, newest[0].meta.block - 1)], [0]
    for entry in newest:
        if entry.meta.block > blocks[-1]:
            blocks.append(entry.meta.block)
            sums.append(sums[-1])
        sums[-1] += entry.counts.fees
    # The sum over a window is linear between the places where its begin or its end meets an entry.
    ends = [end for block in blocks for end in (block, block + lag) if end <= blocks[-1]]
    return max(ceil(_until(end, blocks, sums) - _until(end - lag, blocks, sums)) for end in ends)


def _until(block: int, blocks: Sequence[int], sums: Sequence[int]) -> Fraction:
    """What was earned up to a block."""
    place = bisect_right(blocks, block) - 1
    if place < 0:
        return Fraction(0)
    if place == len(blocks) - 1:
        return Fraction(sums[-1])
    share = Fraction(block - blocks[place], blocks[place + 1] - blocks[place])
    return sums[place] + share * (sums[place + 1] - sums[place])
