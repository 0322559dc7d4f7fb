"""Stages cut so that each piece can be verified: a machine is eligible for a segment if its slice covers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from troth.routing.placement.plan import Slice


def coverage(slices: Iterable[Slice], layers: int) -> list[list[int]]:
    """`[x][y]` is the number of slices that cover `[x, y)`, for x < y; one sweep over first layers."""
    starting: list[list[int]] = [[0] * (layers + 1) for _ in range(layers)]
    for held in slices:
        starting[held.first][held.end] += 1
    table: list[list[int]] = []
    ending = [0] * (layers + 1)
    for row in starting:
        ending = [one + other for one, other in zip(ending, row, strict=True)]
        table.append(list(accumulate(reversed(ending)))[::-1])
    return table


def cut(stages: Sequence[Slice], table: Sequence[Sequence[int]], verifiers: int) -> tuple[Slice, ...]:
    """The fewest segments of which each is covered by its inferencer and at least `verifiers` others.

    A part of such a segment is one too, so taking the longest from the left is optimal. Every single layer must have
    that many hosts.
    """
    segments: list[Slice] = []
    for stage in stages:
        first = stage.first
        while first < stage.end:
            end = stage.end
            while end > first + 1 and table[first][end] <= verifiers:
                end -= 1
            segments.append(Slice(stage.name, first, end))
            first = end
    return tuple(segments)
